//! Lines with named columns: written once as a struct, read as a table by every form of a report.
//!
//! A table is stored column by column, in JSON as an object of arrays: a hundred thousand lines are small that way, and
//! data frames load it as it is.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::value::RawValue;

/// The values of one column, one for each line.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Whole numbers.
    Integers(Vec<u64>),
    /// Numbers; `None` where there is none. Never NaN or infinite.
    Numbers(Vec<Option<f64>>),
    /// Yes or no.
    Flags(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name in every form.
    pub name: &'static str,
    /// Unit of its values: `B`, `s`, `ms`, `bit`, or nothing.
    pub unit: &'static str,
    /// What it says.
    pub about: &'static str,
    /// Its values.
    pub values: Values,
}

/// Lines of one kind, column by column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Its columns, in order; all of one length.
    pub columns: Vec<Column>,
}

impl Table {
    /// A table of lines.
    pub fn of<'a, L: Line + 'a>(lines: impl Iterator<Item = &'a L> + Clone) -> Self {
        let mut columns = Vec::new();
        L::columns(&lines.collect::<Vec<_>>(), &mut columns);
        Self { columns }
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Numbers(values) => values.len(),
            Self::Flags(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    /// What they are, in a word: `integer`, `number`, `flag` or `text`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Integers(_) => "integer",
            Self::Numbers(_) => "number",
            Self::Flags(_) => "flag",
            Self::Texts(_) => "text",
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A struct whose fields are columns.
pub trait Line: Sized {
    /// Appends the columns of `lines`.
    fn columns(lines: &[&Self], out: &mut Vec<Column>);

    /// Appends each column's name and a function of the lines to its JSON.
    fn write<M: SerializeMap>(lines: &[&Self], map: &mut M) -> Result<(), M::Error>;

    /// Takes the lines out of the JSON of their columns.
    ///
    /// # Errors
    /// A column that is missing, of another type or of another length; the text names it.
    fn read(columns: &mut BTreeMap<String, Box<RawValue>>) -> Result<Vec<Self>, String>;
}

/// A type that can stand in a column.
pub trait Cell: Clone + serde::Serialize + for<'de> Deserialize<'de> {
    /// Values of a column of it.
    fn values(cells: impl Iterator<Item = Self>) -> Values;
}

impl Cell for u64 {
    fn values(cells: impl Iterator<Item = Self>) -> Values {
        Values::Integers(cells.collect())
    }
}

impl Cell for f64 {
    fn values(cells: impl Iterator<Item = Self>) -> Values {
        Values::Numbers(cells.map(|cell| Some(cell).filter(|cell| cell.is_finite())).collect())
    }
}

impl Cell for Option<f64> {
    fn values(cells: impl Iterator<Item = Self>) -> Values {
        Values::Numbers(cells.map(|cell| cell.filter(|cell| cell.is_finite())).collect())
    }
}

impl Cell for bool {
    fn values(cells: impl Iterator<Item = Self>) -> Values {
        Values::Flags(cells.collect())
    }
}

impl Cell for String {
    fn values(cells: impl Iterator<Item = Self>) -> Values {
        Values::Texts(cells.collect())
    }
}

/// One column of JSON, as lines are read back.
pub(crate) fn read_column<C: Cell>(
    columns: &mut BTreeMap<String, Box<RawValue>>,
    name: &str,
    len: &mut Option<usize>,
) -> Result<Vec<C>, String> {
    let raw = columns
        .remove(name)
        .ok_or_else(|| format!("column `{name}` is missing"))?;
    let cells: Vec<C> = serde_json::from_str(raw.get()).map_err(|e| format!("column `{name}`: {e}"))?;
    if *len.get_or_insert(cells.len()) != cells.len() {
        return Err(format!("column `{name}` has another length than the columns before it"));
    }
    Ok(cells)
}

/// Writes lines as an object of columns.
///
/// # Errors
/// The serializer's.
pub(crate) fn serialize<L: Line, S: Serializer>(lines: &[L], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    L::write(&lines.iter().collect::<Vec<_>>(), &mut map)?;
    map.end()
}

/// Reads lines from an object of columns; columns of a newer program are passed over.
///
/// # Errors
/// As [`Line::read`].
pub(crate) fn deserialize<'de, L: Line, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<L>, D::Error> {
    let mut columns = BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)?;
    L::read(&mut columns).map_err(D::Error::custom)
}

/// Declares a line: `/// meaning`, then `name: type [unit]`; and perhaps `..field: Type`, whose columns follow.
macro_rules! line {
    (
        $(#[$meta:meta])*
        $vis:vis struct $line:ident {
            $( #[doc = $about:literal] $field:ident : $cell:ty [$unit:literal], )*
            $( .. $rest:ident : $rest_line:ty )?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        $vis struct $line {
            $( #[doc = $about] pub $field: $cell, )*
            $( #[doc = "What its bytes were for."] pub $rest: $rest_line, )?
        }

        impl $crate::columns::Line for $line {
            fn columns(lines: &[&Self], out: &mut Vec<$crate::columns::Column>) {
                $( out.push($crate::columns::Column {
                    name: stringify!($field),
                    unit: $unit,
                    about: $about.trim_ascii(),
                    values: <$cell as $crate::columns::Cell>::values(lines.iter().map(|line| line.$field.clone())),
                }); )*
                $( <$rest_line as $crate::columns::Line>::columns(
                    &lines.iter().map(|line| &line.$rest).collect::<Vec<_>>(), out
                ); )?
            }

            fn write<M: serde::ser::SerializeMap>(lines: &[&Self], map: &mut M) -> Result<(), M::Error> {
                $( map.serialize_entry(
                    stringify!($field),
                    &lines.iter().map(|line| &line.$field).collect::<Vec<_>>(),
                )?; )*
                $( <$rest_line as $crate::columns::Line>::write(
                    &lines.iter().map(|line| &line.$rest).collect::<Vec<_>>(), map
                )?; )?
                Ok(())
            }

            fn read(
                columns: &mut std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>,
            ) -> Result<Vec<Self>, String> {
                let mut len = None;
                $( let $field: Vec<$cell> = $crate::columns::read_column(columns, stringify!($field), &mut len)?; )*
                $( let $rest = <$rest_line as $crate::columns::Line>::read(columns)?; )?
                $( if len.is_some_and(|len| len != $rest.len()) {
                    return Err(format!("the columns of `{}` have another length", stringify!($rest)));
                } )?
                let len = len.unwrap_or(0);
                $( let mut $field = $field.into_iter(); )*
                $( let mut $rest = $rest.into_iter(); )?
                let mut lines = Vec::with_capacity(len);
                for _ in 0..len {
                    lines.push(Self {
                        $( $field: $field.next().ok_or_else(|| stringify!($field).to_owned())?, )*
                        $( $rest: $rest.next().ok_or_else(|| stringify!($rest).to_owned())?, )?
                    });
                }
                Ok(lines)
            }
        }
    };
}
pub(crate) use line;
