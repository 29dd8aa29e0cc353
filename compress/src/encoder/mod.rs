//! The sending side: updates become frames within a budget, and what frames do not carry stays in the memory.

pub(crate) mod attempts;
pub(crate) mod bits;
pub(crate) mod bits_curve;
pub(crate) mod budget_agent;
pub(crate) mod choice;
pub(crate) mod fit;
pub(crate) mod learned;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod sample;
pub(crate) mod save;
pub(crate) mod section;
pub(crate) mod split_low_rank;
pub(crate) mod task;
pub(crate) mod update;
pub(crate) mod weight;
