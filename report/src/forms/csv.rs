//! A table as CSV (RFC 4180): a header of the columns' names, lines that end in CR LF; what is missing is empty.
//!
//! Names are written as they are: a spreadsheet may take one that begins with `=` for a formula.

use crate::columns::{Column, Table, Values};
use crate::error::Error;

/// Writes a table as CSV.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn csv(table: &Table) -> Result<Vec<u8>, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::form("CSV")(e.to_string());
    let mut writer = ::csv::WriterBuilder::new()
        .terminator(::csv::Terminator::CRLF)
        .from_writer(Vec::new());
    let header = table.columns.iter().map(|column| column.name);
    writer.write_record(header).map_err(|e| failed(&e))?;
    let mut cell = String::new();
    for row in 0..table.len() {
        for column in &table.columns {
            cell.clear();
            write(&mut cell, column, row);
            writer.write_field(&cell).map_err(|e| failed(&e))?;
        }
        writer.write_record(None::<&[u8]>).map_err(|e| failed(&e))?;
    }
    writer.into_inner().map_err(|e| failed(&e))
}

fn write(cell: &mut String, column: &Column, row: usize) {
    use std::fmt::Write as _;
    // Writing to a string cannot fail.
    let _ = match &column.values {
        Values::Integers(values) => values.get(row).map_or(Ok(()), |value| write!(cell, "{value}")),
        Values::Numbers(values) => match values.get(row) {
            Some(Some(value)) => write!(cell, "{value}"),
            _ => Ok(()),
        },
        Values::Flags(values) => values.get(row).map_or(Ok(()), |value| write!(cell, "{value}")),
        Values::Texts(values) => {
            cell.push_str(values.get(row).map_or("", String::as_str));
            Ok(())
        }
    };
}
