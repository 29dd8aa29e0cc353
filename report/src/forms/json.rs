//! JSON: objects one key a line, arrays in one line each, so that a column of a hundred thousand values is one line.

use std::io::{Result as IoResult, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::{Formatter, PrettyFormatter};

use crate::columns::{Column, Table, Values};
use crate::error::Error;
use crate::query::{By, Filter};
use crate::report::{Report, SCHEMA};

/// The whole report.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn json(report: &Report) -> Result<String, Error> {
    object_json(report)
}

/// Any object of a report in the same style.
///
/// # Errors
/// As [`json`].
pub fn object_json(object: &impl Serialize) -> Result<String, Error> {
    let mut out = Vec::new();
    let failed = |e: &dyn std::fmt::Display| Error::form("JSON")(e.to_string());
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Style::default());
    object.serialize(&mut serializer).map_err(|e| failed(&e))?;
    out.push(b'\n');
    String::from_utf8(out).map_err(|e| failed(&e))
}

/// One table: `table` is an object of columns, `columns` says what they are, `by`, `round` and `client` what was asked.
///
/// # Errors
/// As [`json`].
pub fn table_json(report: &Report, by: By, filter: &Filter, table: &Table) -> Result<String, Error> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schema: u32,
        run: &'a crate::report::Run,
        by: &'static str,
        round: Option<u64>,
        client: Option<&'a str>,
        columns: Abouts<'a>,
        table: &'a Table,
    }
    object_json(&Answer {
        schema: SCHEMA,
        run: &report.run,
        by: by.name(),
        round: filter.round,
        client: filter.client.as_deref(),
        columns: Abouts(&table.columns),
        table,
    })
}

/// What the columns are: name to `{type, unit, about}`.
pub(super) struct Abouts<'a>(pub(super) &'a [Column]);

impl Serialize for Abouts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct About<'a> {
            r#type: &'a str,
            unit: &'a str,
            about: &'a str,
        }
        serializer.collect_map(self.0.iter().map(|column| {
            let about = About {
                r#type: column.values.kind(),
                unit: column.unit,
                about: column.about,
            };
            (column.name, about)
        }))
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.columns.len()))?;
        for column in &self.columns {
            match &column.values {
                Values::Integers(values) => map.serialize_entry(column.name, values)?,
                Values::Numbers(values) => map.serialize_entry(column.name, values)?,
                Values::Flags(values) => map.serialize_entry(column.name, values)?,
                Values::Texts(values) => map.serialize_entry(column.name, values)?,
            }
        }
        map.end()
    }
}

/// Objects as in serde_json's pretty style; arrays, and all within them, in one line.
#[derive(Default)]
struct Style {
    pretty: PrettyFormatter<'static>,
    arrays: usize,
}

impl Formatter for Style {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        self.arrays += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        self.arrays -= 1;
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        match self.arrays {
            0 => self.pretty.begin_object(writer),
            _ => writer.write_all(b"{"),
        }
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        match self.arrays {
            0 => self.pretty.end_object(writer),
            _ => writer.write_all(b"}"),
        }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> IoResult<()> {
        match self.arrays {
            0 => self.pretty.begin_object_key(writer, first),
            _ if first => Ok(()),
            _ => writer.write_all(b","),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        match self.arrays {
            0 => self.pretty.begin_object_value(writer),
            _ => writer.write_all(b":"),
        }
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        match self.arrays {
            0 => self.pretty.end_object_value(writer),
            _ => Ok(()),
        }
    }
}
