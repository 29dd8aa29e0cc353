//! The built-in learners: models, each trained by the same local steps.
//!
//! A learner is a file with a struct of layers, its `forward` and its [`LearnerInfo`], and a row in [`LEARNERS`]. Nothing
//! here knows rounds, compression or the network.

mod build;
mod choice;
mod cnn;
mod decoder;
mod derivatives;
mod device;
mod examples;
mod generate;
mod graph;
mod har;
mod hugging_face;
mod info;
mod init;
mod layers;
mod lenet;
mod local_steps;
mod lora;
mod lstm;
mod mlp;
mod model;
mod opened;
mod out_of_memory;
mod params;
mod projection;
mod resnet;
mod roles;
mod settings;
mod space;
mod trained;
mod transformer;
mod trial;

pub use choice::LearnerChoice;
pub(crate) use device::found;
pub use generate::Sampling;
pub use graph::{Dropout, max_pool2d};
pub use info::LearnerInfo;
pub use settings::Given;
pub use trained::Trained;

use fl_client::Error;

/// Every built-in learner.
pub static LEARNERS: &[LearnerInfo] = &[
    mlp::LEARNER,
    cnn::LEARNER,
    lenet::LEARNER,
    har::LEARNER,
    resnet::RESNET8,
    resnet::RESNET18,
    resnet::RESNET50,
    lstm::LEARNER,
    transformer::LEARNER,
    lora::LEARNER,
];

/// The built-in learner called `name`.
///
/// # Errors
/// `Config` if there is none; the error lists those there are.
pub fn find(name: &str) -> Result<&'static LearnerInfo, Error> {
    among(LEARNERS, name)
}

/// The learner called `name` among `learners`.
///
/// # Errors
/// `Config` if there is none, or more than one.
pub(crate) fn among<'a>(learners: &'a [LearnerInfo], name: &str) -> Result<&'a LearnerInfo, Error> {
    let mut found = learners.iter().filter(|learner| learner.name == name);
    match (found.next(), found.next()) {
        (Some(learner), None) => Ok(learner),
        (Some(_), Some(_)) => Err(Error::Config(format!(
            "two learners of this program are called `{name}`; give one of them another name"
        ))),
        (None, _) => {
            let names: Vec<&str> = learners.iter().map(|learner| &*learner.name).collect();
            Err(Error::Config(format!(
                "there is no learner `{name}`; the learners are {}",
                names.join(", ")
            )))
        }
    }
}

/// Name and description of every learner of this crate, for a help text.
pub fn help() -> String {
    help_of(LEARNERS)
}

pub(crate) fn help_of(learners: &[LearnerInfo]) -> String {
    let list: Vec<String> = learners.iter().map(|l| format!("{} ({})", l.name, l.about)).collect();
    format!("Name of the learner: {}", list.join(", "))
}

#[cfg(test)]
mod tests;
