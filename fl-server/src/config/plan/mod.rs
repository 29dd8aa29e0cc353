//! A run.toml, parsed into a plan whose values are all in range.

mod cohort;
mod error;
mod handout;
mod identity;
mod limits;
pub(crate) mod memory;
mod method;
mod model;
mod rounded;
mod run_plan;

pub use crate::config::limits::Limits;
pub use cohort::{Cohort, MAX_COHORT, Select};
pub use error::PlanError;
pub use handout::Handout;
pub use method::{Bound, Catalog, Key, MethodInfo, MethodSpec, Range, any_uplink};
pub use model::Roles;
pub use rounded::RoundedVersions;
pub use run_plan::{MAX_ROUNDS, PlanText, RunPlan};
