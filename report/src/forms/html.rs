//! The page: one HTML file that holds its style, its scripts and its data, and makes no network request.
//!
//! Its parts are in `report/page/`. The page of a running server holds no data: it fetches the report and subscribes to changes.

use serde::{Serialize, Serializer};

use crate::error::Error;
use crate::forms::form::{Answer, Asked, Form, Output};
use crate::report::Report;
use crate::report::client::ClientLine;
use crate::report::costs::Costs;
use crate::report::flow::Flow;
use crate::report::participation::Participation;
use crate::report::round::RoundLine;
use crate::report::run::{Baseline, Run};
use crate::report::saving::Saving;
use crate::report::tensor::TensorLine;
use crate::table::line::{self, Columns, line};

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
/// In the order of `page/assemble.mjs`: each script uses those before it, and the last one starts the page.
const SCRIPTS: [&str; 15] = [
    include_str!("../../page/js/format.js"),
    include_str!("../../page/js/dom.js"),
    include_str!("../../page/js/table.js"),
    include_str!("../../page/js/scale.js"),
    include_str!("../../page/js/plot.js"),
    include_str!("../../page/js/figure.js"),
    include_str!("../../page/js/heat.js"),
    include_str!("../../page/js/bytes.js"),
    include_str!("../../page/js/learning.js"),
    include_str!("../../page/js/time.js"),
    include_str!("../../page/js/clients.js"),
    include_str!("../../page/js/head.js"),
    include_str!("../../page/js/proof.js"),
    include_str!("../../page/js/live.js"),
    include_str!("../../page/js/page.js"),
];

/// Writes the page of a report, to be opened as a file.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn page(report: &Report) -> Result<String, Error> {
    // JSON may escape `<`, so that no text in the data can close the element.
    let json = page_json(report)?.replace('<', "\\u003c");
    let data = format!("<script type=\"application/json\" id=\"report\">{json}</script>");
    // No text in the data can contain the digest of the data, so none can guess the nonce.
    let nonce = blake3::hash(data.as_bytes()).to_hex();
    Ok(assemble(
        &format!("{}: communication report", report.run.name),
        &nonce[..32],
        &data,
    ))
}

/// Writes the report as the page reads it: all of it, but only those columns of participations that the page shows.
///
/// # Errors
/// As [`page`].
pub fn page_json(report: &Report) -> Result<String, Error> {
    let shown: Vec<Shown> = report.participations.iter().map(Shown::of).collect();
    let needed = Needed {
        schema: report.schema,
        run: &report.run,
        totals: &report.totals,
        pending: &report.pending,
        metered_up: report.metered_up,
        metered_down: report.metered_down,
        balanced: report.balanced,
        baselines: &report.baselines,
        rounds: Lines(&report.rounds),
        clients: Lines(&report.clients),
        participations: Lines(&shown),
        tensors: Lines(&report.tensors),
        savings: Lines(&report.savings),
        costs: report.costs.as_ref(),
    };
    serde_json::to_string(&needed).map_err(|e| Error::form("HTML")(e.to_string()))
}

/// A report as the page reads it.
#[derive(Serialize)]
struct Needed<'a> {
    schema: u32,
    run: &'a Run,
    totals: &'a Flow,
    pending: &'a Flow,
    metered_up: u64,
    metered_down: u64,
    balanced: bool,
    baselines: &'a [Baseline],
    rounds: Lines<'a, RoundLine>,
    clients: Lines<'a, ClientLine>,
    participations: Lines<'a, Shown>,
    tensors: Lines<'a, TensorLine>,
    savings: Lines<'a, Saving>,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'a Costs>,
}

/// Lines that are written as an object of columns.
struct Lines<'a, L>(&'a [L]);

impl<L: Columns> Serialize for Lines<'_, L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        line::serialize(self.0, serializer)
    }
}

line! {
    /// The columns of participations that the page shows.
    struct Shown {
        /// The round.
        round: u64 [""],
        /// The client.
        client: String [""],
        /// Whether the client's update was accepted.
        updated: bool [""],
        /// Time from the round's first attempt to the update.
        finish_seconds: Option<f64> ["s"],
        /// Training time, as the client reports it.
        train_seconds: f64 ["s"],
        /// Uploads that were resumed or sent again.
        retries: u64 [""],
        /// All bytes read from the client's sockets.
        socket_up: u64 ["B"],
        /// All bytes written to the client's sockets.
        socket_down: u64 ["B"],
    }
}

impl Shown {
    fn of(part: &Participation) -> Self {
        Self {
            round: part.round,
            client: part.client.clone(),
            updated: part.updated,
            finish_seconds: part.finish_seconds,
            train_seconds: part.train_seconds,
            retries: part.flow.retries,
            socket_up: part.flow.socket_up,
            socket_down: part.flow.socket_down,
        }
    }
}

/// Writes the page of a running server. `nonce`: letters and digits drawn for this process; a script runs only with it.
pub fn live_page(run: &str, nonce: &str) -> String {
    assemble(&format!("{run}: live"), nonce, "")
}

fn assemble(title: &str, nonce: &str, data: &str) -> String {
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
            "SCRIPT" => SCRIPTS.iter().for_each(|script| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn a_page_is_whole_and_its_data_cannot_break_out() {
        let mut report = report();
        report.run.name = "</script><script>alert(1)</script>".into();
        let page = page(&report).unwrap();
        assert!(!page.contains("<!--") && page.trim_end().ends_with("</html>"));
        assert!(!page.contains("<script>alert"));
        let data = page
            .split_once("id=\"report\">")
            .unwrap()
            .1
            .split_once("</script>")
            .unwrap()
            .0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["run"]["name"], report.run.name.as_str());
        assert_eq!(data["participations"]["client"], serde_json::json!(["anna"]));
        assert_eq!(data["rounds"]["socket_up"], serde_json::json!([20]));
    }

    #[test]
    fn what_is_in_a_report_cannot_know_the_nonce_of_its_page() {
        let nonce = |run: &str| {
            let mut report = report();
            report.run.name = run.into();
            let page = page(&report).unwrap();
            let (_, rest) = page.split_once("script-src 'nonce-").unwrap();
            rest.split_once('\'').unwrap().0.to_owned()
        };
        let guessed = nonce("digits");
        assert_eq!(nonce("digits"), guessed, "the same report, the same page");
        assert_ne!(nonce(&format!("digits<script nonce={guessed}>")), guessed);
    }

    #[test]
    fn the_columns_of_participations_are_those_that_the_page_reads() {
        let sample = include_str!("../../page/sample.mjs");
        let list = sample
            .split_once("PAGE_PARTICIPATIONS = [")
            .unwrap()
            .1
            .split_once(']')
            .unwrap()
            .0;
        let read: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        let data: serde_json::Value = serde_json::from_str(&page_json(&report()).unwrap()).unwrap();
        let mut written: Vec<&str> = data["participations"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        written.sort_by_key(|name| read.iter().position(|read| read == name));
        assert_eq!(written, read);
    }

    #[test]
    fn a_page_asks_no_network_and_the_live_one_holds_no_data() {
        let page = live_page("digits", "abc");
        assert!(!page.contains("id=\"report\"") && page.contains("nonce-abc"));
        for from in ["src=\"http", "src='http", "href=\"http", "@import", "url(http"] {
            assert!(!page.contains(from), "{from}");
        }
    }

    #[test]
    fn the_scripts_are_those_that_the_pages_own_tool_puts_together() {
        let tool = include_str!("../../page/assemble.mjs");
        let list = tool.split_once("SCRIPTS = [").unwrap().1.split_once(']').unwrap().0;
        let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(names.len(), SCRIPTS.len());
        for (name, script) in names.iter().zip(SCRIPTS) {
            let path = format!("{}/page/js/{name}.js", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(std::fs::read_to_string(path).unwrap(), script, "{name}");
        }
    }
}
