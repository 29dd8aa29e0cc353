//! The form `parquet`, if the feature of that name is on.

#[cfg(not(feature = "parquet"))]
#[path = "absent.rs"]
pub(crate) mod write;
#[cfg(feature = "parquet")]
pub(crate) mod write;

use crate::forms::form::{Asked, Form, Output};
use crate::forms::parquet::write::parquet;

pub(super) static FORM: Form = Form {
    name: "parquet",
    about: "one row group, Snappy",
    shows: Asked::TABLES,
    costs: true,
    output: Output::Binary,
    write: |answer| {
        let (report, name, table) = answer.table()?;
        parquet(&report.run, name, &table)
    },
};
