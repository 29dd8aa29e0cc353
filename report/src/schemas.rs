//! Every kind of table, with its columns.

use crate::queries::QUERIES;
use crate::table::schema::Schema;
use crate::{against, costs, scale};

/// Lists every kind of table of a report, in the order of the docs.
pub fn schemas() -> impl Iterator<Item = &'static Schema> {
    let queries = QUERIES.iter().flat_map(|query| query.schemas);
    let others = [scale::estimate::SCHEMAS, costs::SCHEMAS, against::SCHEMAS];
    queries.chain(others.into_iter().flatten())
}
