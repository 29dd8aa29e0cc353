//! A table with the columns that tell a person something.

use super::grid::Grid;
use super::number::cell;
use crate::columns::{Column, Table, Values};

/// Columns of the wide tables that a person is shown, each list known by a column that only it has. A name with `?` is
/// shown if one of its values is not zero.
const TELLING: [(&str, &str); 4] = [
    (
        "closed",
        "round closed asked updates accuracy? loss? update refused? aborted? steps snapshot? socket_up socket_down \
         bits_up bits_down retries? finish_last seconds money? kwh? co2_g?",
    ),
    (
        "updated",
        "round client updated loss? update refused? aborted? steps snapshot? socket_up socket_down retries? \
         train_seconds encode_seconds finish_seconds",
    ),
    (
        "finish_mean",
        "client asked updates examples update refused? aborted? steps snapshot? socket_up socket_down retries? \
         train_seconds encode_seconds wait_seconds finish_mean money? kwh? co2_g?",
    ),
    (
        "recipe_bytes",
        "round direction tensor parameters frames recipe_bytes? index_bytes? scale_bytes? value_bytes? bytes share \
         density rank? bits cosine cosine_least kept age_most",
    ),
];

/// Writes a table: the telling columns of a wide one, all columns of any other.
pub(crate) fn write(out: &mut String, table: &Table) {
    let mut grid = Grid::default();
    let mut add = |column: &Column| {
        let cells = (0..column.values.len()).map(|row| cell(column, row)).collect();
        grid.column(head(column), matches!(column.values, Values::Texts(_)), cells);
    };
    match TELLING.iter().find(|(mark, _)| table.column(mark).is_some()) {
        None => table.columns.iter().for_each(add),
        Some((_, names)) => {
            for name in names.split(' ') {
                let column = table.column(name.trim_end_matches('?'));
                let told = |column: &&Column| tells(column) || !(name.ends_with('?') || column.name == "closed");
                column.filter(told).into_iter().for_each(&mut add);
            }
        }
    }
    grid.write(out);
}

/// Whether a value differs from what is usual: zero, or a round that is closed.
fn tells(column: &Column) -> bool {
    match &column.values {
        Values::Integers(values) => values.iter().any(|value| *value != 0),
        Values::Numbers(values) => values.iter().flatten().any(|value| *value != 0.0),
        Values::Flags(values) => values.iter().any(|flag| !flag),
        Values::Texts(_) => true,
    }
}

/// A column's name as a head, with its unit where the cells do not say it.
fn head(column: &Column) -> String {
    let name = column.name.strip_suffix("_ms").unwrap_or(column.name);
    let words = name.strip_suffix("_seconds").unwrap_or(name).replace('_', " ");
    match column.unit {
        "s" if words != "seconds" => format!("{words} s"),
        "ms" => format!("{words} ms"),
        _ => words,
    }
}
