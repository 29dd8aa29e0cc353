//! Numbers, names and tables as plain text.
//!
//! Names come from outside and are escaped before they are written.

pub(crate) mod grid;
pub(crate) mod number;
pub(crate) mod table;

use crate::table::Table;

/// Formats bytes with three digits and a unit of 1024.
pub fn size(bytes: u64) -> String {
    number::size(bytes as f64)
}

/// Formats a table for a person. Wide tables leave out columns that the other forms have.
pub fn table_text(table: &Table) -> String {
    let mut out = String::new();
    table::write(&mut out, table);
    out
}
