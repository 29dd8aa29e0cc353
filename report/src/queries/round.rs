//! What each round cost.

use crate::queries::participation;
use crate::queries::query::Query;
use crate::report::round::RoundLine;
use crate::table::Table;
use crate::table::schema::Schema;

pub(super) static QUERY: Query = Query {
    name: "round",
    about: "a round",
    schemas: &[Schema::of::<RoundLine>("round", "One line per round.")],
    answer: |report, filter| match filter.client {
        None => Ok(Table::of(filter.rounds(report))),
        Some(_) => Ok(participation::table(report, filter)),
    },
};
