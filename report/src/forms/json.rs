//! JSON: objects with one key per line, arrays on one line each, so that a column of a hundred thousand values is one line.

use std::io::{Result as IoResult, Write};

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

use crate::error::Error;
use crate::forms::form::{Answer, Asked, Form, Output};
use crate::queries::filter::Filter;
use crate::queries::query::Query;
use crate::report::run::Run;
use crate::report::{Report, SCHEMA};
use crate::table::Table;
use crate::table::column::Column;

pub(super) static FORM: Form = Form {
    name: "json",
    about: "one object",
    shows: Asked::ALL,
    costs: true,
    output: Output::Text,
    write: |answer| {
        let text = match answer {
            Answer::Whole(report) => json(report),
            Answer::Table {
                report,
                query,
                filter,
                table,
            } => table_json(report, query, filter, table),
            Answer::Comparison(_, comparison) => object_json(comparison),
            Answer::Scaled(scaled) => object_json(scaled),
        };
        text.map(String::into_bytes)
    },
};

/// Writes the whole report.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn json(report: &Report) -> Result<String, Error> {
    object_json(report)
}

/// Writes any object in the same style.
///
/// # Errors
/// As [`json`].
pub fn object_json(object: &impl Serialize) -> Result<String, Error> {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Style::default());
    object.serialize(&mut serializer).map_err(Error::form("JSON"))?;
    out.push(b'\n');
    String::from_utf8(out).map_err(Error::form("JSON"))
}

/// Writes one table: `table` is an object of columns, `columns` describes them, `by`, `round` and `client` repeat the question.
///
/// # Errors
/// As [`json`].
pub fn table_json(report: &Report, query: &Query, filter: &Filter, table: &Table) -> Result<String, Error> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schema: u32,
        run: &'a Run,
        by: &'static str,
        round: Option<u64>,
        client: Option<&'a str>,
        columns: Abouts<'a>,
        table: &'a Table,
    }
    object_json(&Answer {
        schema: SCHEMA,
        run: &report.run,
        by: query.name,
        round: filter.round,
        client: filter.client.as_deref(),
        columns: Abouts(&table.columns),
        table,
    })
}

/// Describes columns: an object of name to `{type, unit, about}`.
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
            (&column.name, about)
        }))
    }
}

/// Objects in serde_json's pretty style; arrays, with all that is in them, on one line.
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
