//! A table as CSV (RFC 4180): a header of the columns' names, lines that end in CR LF, an empty cell for a missing value.
//!
//! Names are written as they are: a spreadsheet may take one that begins with `=` for a formula.

use std::fmt::Write as _;

use crate::error::Error;
use crate::forms::form::{Asked, Form, Output};
use crate::table::Table;
use crate::table::column::Value;

pub(super) static FORM: Form = Form {
    name: "csv",
    about: "RFC 4180: a header, lines end in CR LF, a missing value is empty",
    shows: Asked::TABLES,
    costs: true,
    output: Output::Text,
    write: |answer| csv(&answer.table()?.2),
};

/// Writes a table as CSV.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn csv(table: &Table) -> Result<Vec<u8>, Error> {
    let mut writer = ::csv::WriterBuilder::new()
        .terminator(::csv::Terminator::CRLF)
        .from_writer(Vec::new());
    let header = table.columns.iter().map(|column| &*column.name);
    writer.write_record(header).map_err(Error::form("CSV"))?;
    let mut cell = String::new();
    for row in 0..table.len() {
        for (_, value) in table.row(row) {
            cell.clear();
            // Writing to a string cannot fail.
            let _ = match value {
                Value::Integer(value) => write!(cell, "{value}"),
                Value::Number(value) => write!(cell, "{value}"),
                Value::Flag(value) => write!(cell, "{value}"),
                Value::Text(text) => write!(cell, "{text}"),
                Value::Missing => Ok(()),
            };
            writer.write_field(&cell).map_err(Error::form("CSV"))?;
        }
        writer.write_record(None::<&[u8]>).map_err(Error::form("CSV"))?;
    }
    writer.into_inner().map_err(Error::form("CSV"))
}
