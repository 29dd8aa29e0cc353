//! Tables for a person: of wide ones, the columns that matter most.

use crate::table::Table;
use crate::table::column::{Column, Values};
use crate::text::grid::Grid;
use crate::text::number::cell;

/// The columns shown of each wide table, which is recognized by a column that no other table has. A column with `?` is shown if
/// one of its values is not zero; `train/*` is every column that begins so.
const SHOWN: [(&str, &str); 7] = [
    (
        "closed",
        "round closed asked updates limited? accuracy? perplexity? loss? update refused? aborted? steps snapshot? base? socket_up \
         socket_down bits_up bits_down retries? finish_last seconds money? kwh? co2_g? train/* evaluation/*",
    ),
    (
        "updated",
        "round client updated left_out? loss? update refused? aborted? steps snapshot? base? socket_up socket_down retries? \
         train_seconds encode_seconds finish_seconds train/*",
    ),
    (
        "finish_mean",
        "client asked updates examples accuracy? evaluation_loss? update refused? aborted? steps snapshot? base? socket_up socket_down retries? \
         train_seconds encode_seconds wait_seconds finish_mean money? kwh? co2_g?",
    ),
    (
        "recipe_bytes",
        "round direction tensor parameters frames recipe_bytes? index_bytes? scale_bytes? value_bytes? bytes share \
         density rank? bits cosine cosine_least kept age_most",
    ),
    ("times", "what rounds updates up down bytes times accuracy? perplexity?"),
    (
        "own_accuracy",
        "round own_bytes other_bytes ratio own_accuracy? other_accuracy? own_perplexity? other_perplexity? own_bits_up \
         other_bits_up own_bits_down other_bits_down",
    ),
    (
        "own_round",
        "accuracy? perplexity? own_round own_bytes other_round other_bytes ratio",
    ),
];

/// Writes a table: the columns of [`SHOWN`] of a wide one, all columns of any other.
pub(crate) fn write(out: &mut String, table: &Table) {
    let mut grid = Grid::default();
    let mut add = |column: &Column| {
        let cells = (0..column.values.len()).map(|row| cell(column, row)).collect();
        grid.column(head(column), matches!(column.values, Values::Texts(_)), cells);
    };
    match SHOWN.iter().find(|(mark, _)| table.column(mark).is_some()) {
        None => table.columns.iter().for_each(add),
        Some((_, names)) => {
            for name in names.split(' ') {
                if let Some(prefix) = name.strip_suffix('*') {
                    table
                        .columns
                        .iter()
                        .filter(|column| column.name.starts_with(prefix))
                        .for_each(&mut add);
                    continue;
                }
                let column = table.column(name.trim_end_matches('?'));
                column
                    .filter(|column| is_unusual(column) || !(name.ends_with('?') || column.name == "closed"))
                    .into_iter()
                    .for_each(&mut add);
            }
        }
    }
    grid.write(out);
}

/// Whether a value differs from the usual one: zero, or `true` for `closed`.
fn is_unusual(column: &Column) -> bool {
    match &column.values {
        Values::Integers(values) => values.iter().any(|value| *value != 0),
        Values::Numbers(values) => values.iter().flatten().any(|value| *value != 0.0),
        Values::Flags(values) => values.iter().any(|flag| !flag),
        Values::Texts(_) => true,
    }
}

/// The head of a column: its name, with the unit if the cells do not show it.
fn head(column: &Column) -> String {
    if column.name.contains('/') {
        return column.name.to_string();
    }
    let name = column.name.strip_suffix("_ms").unwrap_or(&column.name);
    let words = name.strip_suffix("_seconds").unwrap_or(name).replace('_', " ");
    match column.unit {
        "s" if words != "seconds" => format!("{words} s"),
        "ms" => format!("{words} ms"),
        _ => words,
    }
}
