//! Tables: structs are written once as lines, and every form of a report reads their columns.
//!
//! A table is stored by column, in JSON as an object of arrays: compact for a hundred thousand lines, and data frames
//! load it directly.

pub(crate) mod column;
pub(crate) mod line;
pub(crate) mod schema;
pub(crate) mod sums;

use serde::{Serialize, Serializer};

use crate::table::column::{Column, Value};
use crate::table::line::{Columns, Head};

/// Lines of one kind, column by column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The columns in order, all of one length.
    pub columns: Vec<Column>,
}

impl Table {
    /// Builds the table of `lines`.
    pub fn of<'a, L: Columns + 'a>(lines: impl Iterator<Item = &'a L> + Clone) -> Self {
        Self::with(&Head::LINE, lines)
    }

    /// Builds the table of `lines` with only the columns of these names, in the order of their declaration.
    pub(crate) fn select<'a, L: Columns + 'a>(
        lines: impl Iterator<Item = &'a L> + Clone,
        names: &'static [&'static str],
    ) -> Self {
        let only = Some(names);
        Self::with(&Head { only, ..Head::LINE }, lines)
    }

    fn with<'a, L: Columns + 'a>(head: &Head, lines: impl Iterator<Item = &'a L> + Clone) -> Self {
        let mut columns = Vec::new();
        L::columns(head, lines, &mut columns);
        Self { columns }
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// Whether the table has no line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Finds a column by name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The values of one line, in the order of the columns.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = (&Column, Value<'_>)> {
        self.columns.iter().map(move |column| (column, column.values.at(row)))
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.columns.iter().map(|column| (&column.name, &column.values)))
    }
}

/// Writes lines as an object of columns.
///
/// # Errors
/// The serializer's.
pub(crate) fn serialize<L: Columns, S: Serializer>(lines: &[L], serializer: S) -> Result<S::Ok, S::Error> {
    Table::of(lines.iter()).serialize(serializer)
}
