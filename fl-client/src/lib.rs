//! A federated-learning client: it trains where the data is and sends compressed updates.
//!
//! [`run`] is the whole client. The program `fl-client` calls it, and so does a program with a model and data of its own, as a
//! [`Learner`]: see `examples/own_learner.rs`. This crate has no model: the crate `fl-learn` brings them, as [`Learners`], and
//! contains the program.

pub mod cli;
pub mod learner;
pub mod trainer;
pub mod weights;

mod allocator;
mod base;
mod class_names;
mod client;
mod client_file;
mod conditions;
mod config;
mod detached;
mod device;
mod enrollment;
mod error;
mod error_mapping;
mod event;
mod identity;
mod limits;
mod local_path;
mod named;
mod optimizer_state;
mod private_socket;
mod progress;
mod reached;
mod rpc;
mod session;
mod state;
mod summary;
mod tasks;
mod trace;
mod waits;

pub use allocator::{keep_buffers, release_buffers};
pub use class_names::ClassNames;
pub use client_file::{ClientFile, LearnerEntry, TaskEntry, TrainerEntry};
pub use conditions::{Hours, Moment, Surroundings, When};
pub use config::{Backoff, ClientConfig, ConfigReload, Reload, check_certificates};
pub use detached::DetachedClient;
pub use device::DeviceChoice;
pub use error::Error;
pub use event::{Event, Verdict};
pub use identity::IdentityFiles;
pub use learner::{EvaluatePlan, Evaluation, Fit, FitPlan, Learner, Progress, RunTensors};
pub use limits::Limits;
pub use local_path::local_path;
pub use named::{Description, ExampleShape, Learners, NAME, NamedLearner, TrainersOnly, Wrong};
pub use optimizer_state::OptimizerState;
pub use session::{Outcome, run};
pub use tasks::Tasks;
