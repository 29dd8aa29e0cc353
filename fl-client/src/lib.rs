//! A federated-learning client: it trains where the data is and sends compressed updates.
//!
//! [`run`] is the whole client. The binary calls it, and so does a program with a model and data of its own, as a [`Learner`]:
//! see `examples/own_learner.rs`.

pub mod cli;
pub mod data;
pub mod learner;
pub mod learners;
pub mod ops;
pub mod trainer;
pub mod weights;

mod allocator;
mod base;
mod client;
mod client_file;
mod conditions;
mod config;
mod detached;
mod enrollment;
mod error;
mod error_mapping;
mod event;
mod identity;
mod limits;
mod optimizer_state;
mod progress;
mod reached;
mod rpc;
mod session;
mod state;
mod summary;
mod tasks;
mod trace;

pub use allocator::keep_buffers;
pub use client_file::{ClientFile, LearnerEntry, TaskEntry, TrainerEntry};
pub use conditions::{Hours, Moment, Surroundings, When};
pub use config::{Backoff, ClientConfig, Reload, Reloaded, check_certificates};
pub use detached::Detached;
pub use error::Error;
pub use event::{Event, Sent};
pub use identity::IdentityFiles;
pub use learner::{EvaluatePlan, Evaluation, Fit, FitPlan, Learner, Progress, RunTensors};
pub use limits::Limits;
pub use optimizer_state::OptimizerState;
pub use session::{Outcome, run};
pub use tasks::Tasks;
