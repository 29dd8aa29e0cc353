//! The global model as a log of frames: what the rounds' updates make of it, the same bits on every machine.
//!
//! It knows neither clients' machines nor the kind of model: a layout, values and frames. Nothing here reads a clock
//! or a file; frames come through a closure, one at a time, so that the memory needed does not grow with the cohort.

mod checkpoint;
mod close_round;
mod error;
mod global_model;
mod limited;
pub(crate) mod model_store;
mod optimizer;
pub(crate) mod persistence_error;
mod replay;
pub(crate) mod restore;
pub(crate) mod run_metadata;
mod sections;
pub(crate) mod stored_frames;
mod updates;
mod version_path;

pub use close_round::RoundResult;
pub use error::ModelError;
pub use global_model::GlobalModel;
pub use limited::Limited;
pub use optimizer::fedavg::ServerOptimizer;
pub use persistence_error::PersistenceError;
pub use replay::{Replayed, RolledBack, replayed};
pub use version_path::{sum_frames, version_path};
