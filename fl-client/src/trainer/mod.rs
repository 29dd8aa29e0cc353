//! Trainers: programs beside the client that train a model, spoken to in JSON lines and safetensors files
//! (docs/reference/trainers.md).
//!
//! ```text
//! TrainerLearner   a trainer as a Learner; the client's thread
//!   Supervisor     the learner's handle
//!   Actor          starts, asks and ends the trainer; a thread of its own
//!     Running      a trainer that runs, and what it said about itself
//!       Link       messages over two pipes or a socket
//!       Process    the process, its group and their guard
//! ```

mod actor;
mod ask;
mod attach;
mod clock;
mod config;
mod defaults;
mod difference;
mod folder;
mod footprint;
mod learner;
mod link;
mod local;
mod message;
mod output;
mod own_base;
mod process;
mod replaced;
mod request;
mod running;
mod supervisor;
mod tensors;
#[cfg(test)]
mod tests;

pub(crate) use config::NO_PROGRESS;
pub use config::{Program, Source, TrainerConfig};
pub(crate) use defaults::own_run;
pub(crate) use folder::WorkFolder;
pub(crate) use footprint::Footprint;
pub use learner::TrainerLearner;
pub use message::Hello;
pub(crate) use tensors::check_weights;
