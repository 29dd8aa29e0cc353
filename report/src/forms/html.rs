//! The pages: each one HTML file that holds its style, its scripts and its data, and makes no network request.
//!
//! Their parts are in `report/page/`. The page of a running server holds no data: it fetches the report and subscribes to changes.

use serde::Serialize;

use crate::error::Error;
use crate::forms::form::{Answer, Asked, Form, Output};
use crate::report::Report;
use crate::report::costs::Costs;
use crate::report::flow::Flow;
use crate::report::notes::notes;
use crate::report::run::{Baseline, Run};
use crate::report::settings::Settings;
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

const PAGE: &str = include_str!("../../page/page.html");
const STYLE: &str = include_str!("../../page/page.css");
const CHARTS: &str = include_str!("../../page/charts.js");
macro_rules! scripts {
    ($($name:literal)*) => { [$( include_str!(concat!("../../page/js/", $name, ".js")) ),*] };
}
/// In the order of `page/assemble.mjs`: each script uses those before it, and the last one of a page starts it.
const SHARED: &[&str] = &scripts!("format" "dom" "table" "scale" "plot" "figure" "bars" "shell");

/// A page's own scripts, which follow the shared ones.
struct Scripts {
    own: &'static [&'static str],
    /// What a reader does who allows no scripts.
    instead: &'static str,
}

const REPORT: Scripts = Scripts {
    own: &scripts!("heat" "bytes" "learning" "time" "clients" "head" "overview" "proof" "live" "page"),
    instead: "run fl-server report with --format text or csv",
};
const SWEEP: Scripts = Scripts {
    own: &scripts!("sweep"),
    instead: "read trials.csv beside it",
};

/// Writes the page of a report, to be opened as a file.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn page(report: &Report) -> Result<String, Error> {
    let title = format!("{}: communication report", report.run.name);
    Ok(with_data(&REPORT, &title, &page_json(report)?))
}

/// Writes the page of a sweep, to be opened as a file. `data`: what `page/js/sweep.js` reads.
///
/// # Errors
/// `Form` if the data cannot be JSON.
pub fn sweep_page(title: &str, data: &impl Serialize) -> Result<String, Error> {
    let json = serde_json::to_string(data).map_err(Error::form("HTML"))?;
    Ok(with_data(&SWEEP, &format!("{title}: sweep"), &json))
}

fn with_data(scripts: &Scripts, title: &str, json: &str) -> String {
    // JSON may escape `<`, so that no text in the data can close the element.
    let json = json.replace('<', "\\u003c");
    let data = format!("<script type=\"application/json\" id=\"data\">{json}</script>");
    // No text in the data can contain the digest of the data, so none can guess the nonce.
    let nonce = blake3::hash(data.as_bytes()).to_hex();
    assemble(scripts, title, &nonce[..32], &data)
}

/// Writes the report as the page reads it: all of it, but only those columns of participations that the page shows.
///
/// # Errors
/// As [`page`].
pub fn page_json(report: &Report) -> Result<String, Error> {
    let data = PageData {
        schema: report.schema,
        run: &report.run,
        settings: &report.settings,
        notes: notes(report),
        totals: &report.totals,
        pending: &report.pending,
        metered_up: report.metered_up,
        metered_down: report.metered_down,
        balanced: report.balanced,
        baselines: &report.baselines,
        rounds: Table::of(report.rounds.iter()),
        clients: Table::of(report.clients.iter()),
        participations: Table::select(report.participations.iter(), SHOWN),
        tensors: Table::of(report.tensors.iter()),
        savings: Table::of(report.savings.iter()),
        costs: report.costs.as_ref(),
    };
    serde_json::to_string(&data).map_err(Error::form("HTML"))
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
    schema: u32,
    run: &'a Run,
    settings: &'a Settings,
    notes: Vec<String>,
    totals: &'a Flow,
    pending: &'a Flow,
    metered_up: u64,
    metered_down: u64,
    balanced: bool,
    baselines: &'a [Baseline],
    rounds: Table,
    clients: Table,
    participations: Table,
    tensors: Table,
    savings: Table,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'a Costs>,
}

/// Writes the page of a running server. `nonce`: letters and digits drawn for this process; a script runs only with it.
pub fn live_page(run: &str, nonce: &str) -> String {
    assemble(&REPORT, &format!("{run}: live"), nonce, "")
}

fn assemble(scripts: &Scripts, title: &str, nonce: &str, data: &str) -> String {
    let mut out = String::with_capacity(PAGE.len() + STYLE.len() + CHARTS.len() + data.len() + 200_000);
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("<!--") {
        out.push_str(before);
        let Some((name, after)) = after.split_once("-->") else {
            break;
        };
        match name {
            "TITLE" => out.push_str(&escape(title)),
            "NONCE" => out.push_str(nonce),
            "STYLE" => out.push_str(STYLE),
            "CHARTS" => out.push_str(CHARTS),
            "INSTEAD" => out.push_str(scripts.instead),
            "SCRIPT" => SHARED.iter().chain(scripts.own).for_each(|script| {
                out.push_str(script);
                out.push('\n');
            }),
            "DATA" => out.push_str(data),
            _ => {}
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Escapes text for an element or an attribute.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
