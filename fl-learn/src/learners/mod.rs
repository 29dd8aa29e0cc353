//! The built-in learners: models, each trained by the same local steps.
//!
//! A learner is a file with a struct of layers, its `forward` and its [`LearnerInfo`], and a row in [`LEARNERS`]. Nothing
//! here knows rounds, compression or the network.

mod build;
mod choice;
mod cnn;
mod decoder;
mod device;
#[cfg(test)]
mod equivalence;
mod examples;
mod generate;
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
mod out_of_memory;
mod params;
mod projection;
mod resnet;
mod settings;
mod space;
mod trained;
mod transformer;

pub use choice::LearnerChoice;
pub(crate) use device::found;
pub use generate::Sampling;
pub use info::LearnerInfo;
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
    let found = LEARNERS.iter().find(|learner| learner.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = LEARNERS.iter().map(|learner| learner.name).collect();
        Error::Config(format!(
            "there is no learner `{name}`; the learners are {}",
            names.join(", ")
        ))
    })
}

/// Name and description of every learner, for a help text.
pub fn help() -> String {
    let list: Vec<String> = LEARNERS.iter().map(|l| format!("{} ({})", l.name, l.about)).collect();
    format!("Name of the learner: {}", list.join(", "))
}
