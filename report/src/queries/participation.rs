//! What each client cost in each round.

use crate::queries::filter::Filter;
use crate::queries::query::Query;
use crate::report::Report;
use crate::report::participation::Participation;
use crate::table::Table;
use crate::table::schema::Schema;

pub(super) static QUERY: Query = Query {
    name: "participation",
    about: "a client in a round",
    schemas: &[Schema::of::<Participation>(
        "participation",
        "One line per client and round; also the answer to `--by round --client C` and `--by client --round R`.",
    )],
    answer: |report, filter| Ok(table(report, filter)),
};

pub(super) fn table(report: &Report, filter: &Filter) -> Table {
    Table::of(filter.participations(report))
}
