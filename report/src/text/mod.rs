//! A report for a person to read, as plain text.
//!
//! Names come from outside: they are never written as they are.

mod grid;
mod number;
mod table;
mod time;
mod whole;

pub use whole::text;

pub(crate) use number::{count, digits, name, percent, short, size as size_of};
pub(crate) use table::write;

use crate::columns::Table;

/// Bytes with three digits and a unit of 1024.
pub fn size(bytes: u64) -> String {
    number::size(bytes as f64)
}

/// A table as text: the columns that tell a person something, under their heads. Wide tables leave some out, which
/// the other forms have.
pub fn table_text(table: &Table) -> String {
    let mut out = String::new();
    write(&mut out, table);
    out
}
