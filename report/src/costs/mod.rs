//! What a run cost in money and carbon, by prices that the user gives. A price that is not given is zero.

mod join;
pub(crate) mod plan;
mod price;

use crate::report::costs::{ClientCost, RoundCost};
use crate::table::schema::Schema;

/// The tables of costs.
pub(crate) static SCHEMAS: &[Schema] = &[
    Schema::of::<ClientCost>(
        "costs by client",
        "Columns that `--by client --costs FILE` adds; also `costs.clients` of the JSON.",
    ),
    Schema::of::<RoundCost>(
        "costs by round",
        "Columns that `--by round --costs FILE` adds; also `costs.rounds` of the JSON.",
    ),
];
