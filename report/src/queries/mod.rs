//! The questions to a report, one file each. A new question is a file here and its line in [`QUERIES`].

mod client;
pub(crate) mod direction;
pub(crate) mod filter;
mod participation;
pub(crate) mod query;
mod round;
pub(crate) mod saving;
pub(crate) mod stage;
pub(crate) mod tensor;

use crate::queries::filter::Filter;
use crate::queries::query::Query;

/// All questions, in the order in which help texts and docs list them.
pub static QUERIES: &[&Query] = &[
    &round::QUERY,
    &client::QUERY,
    &participation::QUERY,
    &tensor::QUERY,
    &stage::QUERY,
    &direction::QUERY,
    &saving::QUERY,
];

impl Query {
    /// Finds a question by name.
    pub fn named(name: &str) -> Option<&'static Self> {
        QUERIES.iter().copied().find(|query| query.name == name)
    }

    /// The default question: rounds, or participations if a filter restricts the lines.
    pub fn of(filter: &Filter) -> &'static Self {
        if *filter == Filter::default() {
            &round::QUERY
        } else {
            &participation::QUERY
        }
    }
}
