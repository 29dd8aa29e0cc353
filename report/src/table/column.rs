//! One column of a table, and the types whose values fill columns.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The values of one column, one for each line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Values {
    /// Unsigned integers.
    Integers(Vec<u64>),
    /// Numbers; `None` where a line has none. Never NaN or infinite.
    Numbers(Vec<Option<f64>>),
    /// Booleans.
    Flags(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
}

/// One value of a column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value<'a> {
    Integer(u64),
    Number(f64),
    Flag(bool),
    Text(&'a str),
    /// A number that the line does not have, or a line beyond the end.
    Missing,
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The name in every form.
    pub name: Cow<'static, str>,
    /// The unit of the values, such as `B`, `s`, `ms` or `bit`; empty if they have none.
    pub unit: &'static str,
    /// The meaning, as a sentence.
    pub about: &'static str,
    /// The values.
    pub values: Values,
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

    /// Whether the column has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a value, and every value is the integer 0.
    pub(crate) fn are_zero(&self) -> bool {
        matches!(self, Self::Integers(values) if !values.is_empty() && values.iter().all(|value| *value == 0))
    }

    /// The type in one word: `integer`, `number`, `flag` or `text`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Integers(_) => "integer",
            Self::Numbers(_) => "number",
            Self::Flags(_) => "flag",
            Self::Texts(_) => "text",
        }
    }

    pub(crate) fn at(&self, row: usize) -> Value<'_> {
        let value = match self {
            Self::Integers(values) => values.get(row).map(|value| Value::Integer(*value)),
            Self::Numbers(values) => values.get(row).copied().flatten().map(Value::Number),
            Self::Flags(values) => values.get(row).map(|flag| Value::Flag(*flag)),
            Self::Texts(values) => values.get(row).map(|text| Value::Text(text)),
        };
        value.unwrap_or(Value::Missing)
    }
}

/// A type whose values fill one column.
pub trait Cell: Clone + Serialize + DeserializeOwned {
    /// Collects the values of a column.
    fn values(cells: impl Iterator<Item = Self>) -> Values;
}

impl Cell for u64 {
    fn values(cells: impl Iterator<Item = Self>) -> Values {
        Values::Integers(cells.collect())
    }
}

impl Cell for f64 {
    fn values(cells: impl Iterator<Item = Self>) -> Values {
        Option::values(cells.map(Some))
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
