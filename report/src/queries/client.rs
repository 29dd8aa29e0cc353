//! What each client cost.

use crate::queries::participation;
use crate::queries::query::Query;
use crate::report::client::ClientLine;
use crate::table::Table;
use crate::table::schema::Schema;

pub(super) static QUERY: Query = Query {
    name: "client",
    about: "a client",
    schemas: &[Schema::of::<ClientLine>("client", "One line per client.")],
    answer: |report, filter| match filter.round {
        None => {
            let lines = report.clients.iter().filter(|line| filter.has_client(&line.client));
            Ok(Table::of(lines))
        }
        Some(_) => Ok(participation::table(report, filter)),
    },
};
