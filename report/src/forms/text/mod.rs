//! A report for a person, as plain text.

mod comparison;
mod costs;
mod estimate;
mod time;
pub(crate) mod whole;

use crate::forms::form::{Answer, Asked, Form, Output};
use crate::forms::text::whole::text;
use crate::text::table_text;

pub(super) static FORM: Form = Form {
    name: "text",
    about: "for a person; wide tables omit columns",
    shows: Asked::ALL,
    costs: true,
    output: Output::Text,
    write: |answer| {
        let text = match answer {
            Answer::Whole(report) => text(report),
            Answer::Table { table, .. } => table_text(table),
            Answer::Comparison(_, comparison) => comparison.text(),
            Answer::Scaled(scaled) => scaled.text(),
        };
        Ok(text.into_bytes())
    },
};
