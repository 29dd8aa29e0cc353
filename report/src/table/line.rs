//! Lines: structs whose fields are declared once, with unit and meaning, and read as the columns of a table.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::table::column::{Cell, Column};

/// Which frames a group of fields describes. The names of its columns end in `_up` or `_down` accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The frames of the line, whichever they are: no suffix.
    Plain,
    /// The updates of a round.
    Up,
    /// The model update of a round.
    Down,
}

/// Columns that are left out where every line has 0: kinds of bytes that few runs have.
const RARE: [&str; 1] = ["base"];

/// Name, unit and meaning of a column; name and meaning for each [`Side`].
#[derive(Debug, Clone, Copy)]
pub struct Head {
    pub(crate) names: [&'static str; 3],
    pub(crate) abouts: [&'static str; 3],
    pub(crate) unit: &'static str,
    pub(crate) side: Side,
    /// Columns that are left out if their names are not among these.
    pub(crate) only: Option<&'static [&'static str]>,
}

impl Head {
    /// The head of a whole line, whose fields have their own.
    pub(crate) const LINE: Self = Self {
        names: [""; 3],
        abouts: [""; 3],
        unit: "",
        side: Side::Plain,
        only: None,
    };

    pub(crate) fn name(&self) -> &'static str {
        self.names[self.side as usize]
    }

    pub(crate) fn about(&self) -> &'static str {
        self.abouts[self.side as usize].trim_ascii()
    }

    /// Whether the column is among those asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.only.is_none_or(|names| names.contains(&self.name()))
    }
}

/// The JSON of columns while lines are read from it.
#[derive(Debug)]
pub struct Source {
    columns: BTreeMap<String, Box<RawValue>>,
    /// Length of the columns read so far.
    len: Option<usize>,
}

impl Source {
    pub(crate) fn len(&self) -> usize {
        self.len.unwrap_or(0)
    }

    /// The columns left whose names begin with `prefix`, each with the rest of its name.
    pub(crate) fn named(&self, prefix: &str) -> Vec<(String, String)> {
        self.columns
            .keys()
            .filter_map(|name| Some((name.clone(), name.strip_prefix(prefix)?.to_owned())))
            .collect()
    }

    /// Takes the values of a column.
    ///
    /// # Errors
    /// A column that is missing, of another type or of another length.
    pub(crate) fn take<C: Cell>(&mut self, name: &str) -> Result<Vec<C>, String> {
        let Some(json) = self.columns.remove(name) else {
            // Every line has 0.
            let zero = serde_json::from_str("0").ok().filter(|_| RARE.contains(&name));
            let absent = zero.zip(self.len);
            let (absent, len) = absent.ok_or_else(|| format!("column `{name}` is missing"))?;
            return Ok(vec![absent; len]);
        };
        let cells: Vec<C> = serde_json::from_str(json.get()).map_err(|e| format!("column `{name}`: {e}"))?;
        if *self.len.get_or_insert(cells.len()) != cells.len() {
            return Err(format!("column `{name}` has another length than the columns before it"));
        }
        Ok(cells)
    }
}

/// What fills columns of a table: a value one, a line or a group of fields as many as it has fields.
pub trait Columns: Sized {
    /// Appends the columns of `fields` to `out`.
    fn columns<'a>(head: &Head, fields: impl Iterator<Item = &'a Self> + Clone, out: &mut Vec<Column>)
    where
        Self: 'a;

    /// Takes the values out of the JSON of their columns.
    ///
    /// # Errors
    /// A column that is missing, of another type or of another length; the text names the column.
    fn read(head: &Head, source: &mut Source) -> Result<Vec<Self>, String>;
}

impl<C: Cell> Columns for C {
    fn columns<'a>(head: &Head, fields: impl Iterator<Item = &'a Self> + Clone, out: &mut Vec<Column>)
    where
        Self: 'a,
    {
        if !head.is_wanted() {
            return;
        }
        let values = C::values(fields.cloned());
        if RARE.contains(&head.name()) && values.are_zero() {
            return;
        }
        out.push(Column {
            name: Cow::Borrowed(head.name()),
            unit: head.unit,
            about: head.about(),
            values,
        });
    }

    fn read(head: &Head, source: &mut Source) -> Result<Vec<Self>, String> {
        source.take(head.name())
    }
}

/// Reads lines from an object of columns, and ignores columns that it does not know.
///
/// # Errors
/// As [`Columns::read`].
pub(crate) fn deserialize<'de, L: Columns, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<L>, D::Error> {
    let columns = BTreeMap::deserialize(deserializer)?;
    L::read(&Head::LINE, &mut Source { columns, len: None }).map_err(D::Error::custom)
}

/// Declares a line or a group of fields. A value: `/// meaning`, then `name: type [unit]`, or `name as "column": type [unit]`
/// where the column has another name. A group: `name: type []`, or `[Up]` and `[Down]` to end its columns' names so.
macro_rules! line {
    (
        $(#[$meta:meta])*
        $vis:vis struct $line:ident {
            $(
                #[doc = $about:literal]
                $(#[$field_meta:meta])*
                $field:ident $(as $name:literal)? : $type:ty [$($unit:literal)? $($side:ident)?],
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        $vis struct $line {
            $( #[doc = $about] $(#[$field_meta])* pub $field: $type, )*
        }

        impl $crate::table::line::Columns for $line {
            fn columns<'a>(
                head: &$crate::table::line::Head,
                lines: impl Iterator<Item = &'a Self> + Clone,
                out: &mut Vec<$crate::table::column::Column>,
            ) {
                $( <$type as $crate::table::line::Columns>::columns(
                    &$crate::table::line::line!(@head head, $about, $field $($name)?, [$($unit)?] [$($side)?]),
                    lines.clone().map(|line| &line.$field),
                    out,
                ); )*
            }

            fn read(
                head: &$crate::table::line::Head,
                source: &mut $crate::table::line::Source,
            ) -> Result<Vec<Self>, String> {
                $( let mut $field = <$type as $crate::table::line::Columns>::read(
                    &$crate::table::line::line!(@head head, $about, $field $($name)?, [$($unit)?] [$($side)?]),
                    source,
                )?.into_iter(); )*
                let mut lines = Vec::with_capacity(source.len());
                for _ in 0..source.len() {
                    lines.push(Self {
                        $( $field: $field.next().ok_or(stringify!($field))?, )*
                    });
                }
                Ok(lines)
            }
        }
    };
    (@head $outer:ident, $about:literal, $field:ident $($name:literal)?, [$($unit:literal)?] [$($side:ident)?]) => {
        $crate::table::line::Head {
            names: [
                $crate::table::line::line!(@name $field $($name)?),
                concat!($crate::table::line::line!(@name $field $($name)?), "_up"),
                concat!($crate::table::line::line!(@name $field $($name)?), "_down"),
            ],
            abouts: [
                $about,
                concat!($about, " Sum over the updates of the round."),
                concat!($about, " The model update of the round."),
            ],
            unit: concat!($($unit)?),
            side: [$($crate::table::line::Side::$side,)? $outer.side][0],
            only: $outer.only,
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}
pub(crate) use line;
