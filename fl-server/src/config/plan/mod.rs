//! A run.toml, parsed into a plan whose values are all in range.

mod cohort;
mod error;
mod identity;
mod limits;
pub(crate) mod memory;
mod run_plan;
mod strategy;

pub use crate::config::limits::Limits;
pub use cohort::{Cohort, MAX_COHORT, Select};
pub use error::PlanError;
pub use run_plan::{MAX_ROUNDS, PlanText, RunPlan};
pub use strategy::StrategySpec;
