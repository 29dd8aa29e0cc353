//! How a client trains in one round: the `[train]` table of a run, sent with every task.

mod learning_rate;
mod optimizer;
mod range;
mod schedule;
mod settings;

pub use learning_rate::StepAt;
pub use optimizer::{AdamW, Muon, OptimizerSpec};
pub use schedule::{Decay, Schedule, Span};
pub use settings::{Length, Precision, StatePolicy, TrainTable, Training};
