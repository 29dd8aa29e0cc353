//! The global model as a log of frames: what the updates of each round make of it, with the same bits on every machine.
//!
//! This layer knows a layout, values and frames; it knows no client's machine and no kind of model. Closing a round reads no
//! clock and no file: frames come through a closure, one for each thread at a time, so the memory does not grow with the number of
//! clients.
//! `restore`, `model_store` and `run_metadata` bring models from the disk and back.

mod aggregate;
pub mod aggregator;
pub mod budgets;
mod checkpoint;
mod close_round;
mod decoded_ahead;
pub(crate) mod decoded_updates;
mod error;
mod global_model;
pub(crate) mod kept_snapshots;
mod methods;
pub(crate) mod model_store;
pub mod optimizer;
pub(crate) mod persistence_error;
mod replay;
pub(crate) mod restore;
pub(crate) mod run_metadata;
mod sections;
pub(crate) mod space;
pub(crate) mod stored_frames;
pub(crate) mod stored_layout;
mod updates;
pub(crate) mod version_path;

pub use crate::storage::record::{Claim, Limited};
pub use aggregator::{Aggregator, AggregatorMethod};
pub use close_round::RoundResult;
pub use error::ModelError;
pub use global_model::GlobalModel;
pub use methods::Methods;
pub use optimizer::{OptimizerMethod, ServerOptimizer};
pub use persistence_error::PersistenceError;
pub use updates::Updates;
pub use version_path::{sum_frames, version_path};

pub use crate::config::limits::Part;
