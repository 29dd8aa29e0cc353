//! Aggregators: from the updates of a round, with their weights, to one update. One file each; a new one is a file here and a
//! line in [`METHODS`].

mod mean;
mod method;
mod trimmed_mean;

pub(super) use method::build;
pub use method::{Aggregator, AggregatorMethod};

/// Every aggregator of this program. The first is the default.
pub static METHODS: &[&AggregatorMethod] = &[&mean::METHOD, &trimmed_mean::METHOD];
