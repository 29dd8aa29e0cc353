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

pub(crate) use choice::help_of;
pub use choice::{LEARNERS, LearnerChoice, find, help};
pub(crate) use device::found;
pub use generate::Sampling;
pub use graph::{Dropout, max_pool2d};
pub use info::LearnerInfo;
pub use settings::GivenSettings;
pub use trained::TrainedModel;

#[cfg(test)]
mod tests;
