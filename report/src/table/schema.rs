//! The columns of a kind of table, without any line.

use crate::table::Table;
use crate::table::line::Columns;

/// One kind of table, as docs and schemas list it.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The name of the kind.
    pub name: &'static str,
    /// Describes one line, in a sentence.
    pub about: &'static str,
    table: fn() -> Table,
}

impl Schema {
    pub(crate) const fn of<L: Columns + 'static>(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            table: || Table::of(std::iter::empty::<&L>()),
        }
    }

    /// An empty table with the columns of this kind.
    pub fn table(&self) -> Table {
        (self.table)()
    }
}
