//! The page of a report. Its style and scripts are those of fl-page.

use serde::Serialize;

use crate::error::Error;
use crate::forms::form::{Answer, Asked, Form, Output};
use crate::report::costs::Costs;
use crate::report::notes::notes;
use crate::report::{Report, Summary};
use crate::table::Table;

pub(super) static FORM: Form = Form {
    name: "html",
    about: "one page that needs no network",
    shows: &[Asked::Whole],
    costs: true,
    output: Output::Text,
    write: |answer| match answer {
        Answer::Whole(report) => page(report).map(String::into_bytes),
        _ => Err(Error::NotKept("a page holds the whole run")),
    },
};

/// Writes the page of a report, to be opened as a file.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn page(report: &Report) -> Result<String, Error> {
    let title = format!("{}: communication report", report.run.name);
    let written = fl_page::REPORT.with_data(&title, &PageData::of(report));
    written.map_err(Error::form("HTML"))
}

/// Writes the report as the page reads it: all of it, but only those columns of participations that the page shows.
///
/// # Errors
/// As [`page`].
pub fn page_json(report: &Report) -> Result<String, Error> {
    serde_json::to_string(&PageData::of(report)).map_err(Error::form("HTML"))
}

/// The columns of participations that the page shows.
const SHOWN: &[&str] = &[
    "round",
    "client",
    "updated",
    "finish_seconds",
    "train_seconds",
    "retries",
    "socket_up",
    "socket_down",
];

/// A report as the page reads it.
#[derive(Serialize)]
struct PageData<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
    notes: Vec<String>,
    rounds: Table,
    clients: Table,
    participations: Table,
    tensors: Table,
    savings: Table,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'a Costs>,
}

impl<'a> PageData<'a> {
    fn of(report: &'a Report) -> Self {
        Self {
            summary: report.summary(),
            notes: notes(report),
            rounds: Table::of(report.rounds.iter()),
            clients: Table::of(report.clients.iter()),
            participations: Table::select(report.participations.iter(), SHOWN),
            tensors: Table::of(report.tensors.iter()),
            savings: Table::of(report.savings.iter()),
            costs: report.costs.as_ref(),
        }
    }
}

/// Writes the page of a running server. `nonce`: letters and digits drawn for this process; a script runs only with it.
pub fn live_page(run: &str, nonce: &str) -> String {
    fl_page::REPORT.live(&format!("{run}: live"), nonce)
}
