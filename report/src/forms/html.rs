//! The page: one HTML file that holds its style, its scripts and its data, and asks no network for anything.
//!
//! `page/` has its parts. A page of a running server holds no data: it fetches the report and is told of changes.

use serde::{Serialize, Serializer};

use crate::columns::{self, Line, line};
use crate::costs::Costs;
use crate::error::Error;
use crate::flow::Flow;
use crate::lines::{ClientLine, Participation, RoundLine, TensorLine};
use crate::report::{Baseline, Report, Run};
use crate::savings::Saving;

const PAGE: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/page.css");
const CHARTS: &str = include_str!("../page/charts.js");
/// In the order of `page/assemble.mjs`: each uses those before it, and the last one starts.
const SCRIPTS: [&str; 15] = [
    include_str!("../page/js/format.js"),
    include_str!("../page/js/dom.js"),
    include_str!("../page/js/table.js"),
    include_str!("../page/js/scale.js"),
    include_str!("../page/js/plot.js"),
    include_str!("../page/js/figure.js"),
    include_str!("../page/js/heat.js"),
    include_str!("../page/js/bytes.js"),
    include_str!("../page/js/learning.js"),
    include_str!("../page/js/time.js"),
    include_str!("../page/js/clients.js"),
    include_str!("../page/js/head.js"),
    include_str!("../page/js/proof.js"),
    include_str!("../page/js/live.js"),
    include_str!("../page/js/page.js"),
];

/// The page of a report, to be opened as a file.
///
/// # Errors
/// `Form`; none that a report can cause.
pub fn page(report: &Report) -> Result<String, Error> {
    // What closes the element cannot stand in it: `<` is written as JSON may write it.
    let json = page_json(report)?.replace('<', "\\u003c");
    let data = format!("<script type=\"application/json\" id=\"report\">{json}</script>");
    // Nothing in the data can contain the digest of the data.
    let nonce = blake3::hash(data.as_bytes()).to_hex();
    Ok(assemble(
        &format!("{}: communication report", report.run.name),
        &nonce[..32],
        &data,
    ))
}

/// What the page needs to know of a report: all of it, and of participations only the columns that it shows.
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
        rounds: Columns(&report.rounds),
        clients: Columns(&report.clients),
        participations: Columns(&shown),
        tensors: Columns(&report.tensors),
        savings: Columns(&report.savings),
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
    rounds: Columns<'a, RoundLine>,
    clients: Columns<'a, ClientLine>,
    participations: Columns<'a, Shown>,
    tensors: Columns<'a, TensorLine>,
    savings: Columns<'a, Saving>,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'a Costs>,
}

/// Lines, written as an object of columns.
struct Columns<'a, L>(&'a [L]);

impl<L: Line> Serialize for Columns<'_, L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        columns::serialize(self.0, serializer)
    }
}

line! {
    /// What the page shows of a client in a round.
    struct Shown {
        /// The round.
        round: u64 [""],
        /// The client.
        client: String [""],
        /// Whether its update counts.
        updated: bool [""],
        /// From the round's opening to its update.
        finish_seconds: Option<f64> ["s"],
        /// Training, as it says.
        train_seconds: f64 ["s"],
        /// Uploads that were resumed or sent again.
        retries: u64 [""],
        /// Everything read from its sockets.
        socket_up: u64 ["B"],
        /// Everything written to them.
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

/// The page of a running server. `nonce`: letters and digits drawn for this process, without which no script runs.
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

/// Text as it may stand in an element.
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
        let sample = include_str!("../page/sample.mjs");
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
        let tool = include_str!("../page/assemble.mjs");
        let list = tool.split_once("SCRIPTS = [").unwrap().1.split_once(']').unwrap().0;
        let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(names.len(), SCRIPTS.len());
        for (name, script) in names.iter().zip(SCRIPTS) {
            let path = format!("{}/page/js/{name}.js", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(std::fs::read_to_string(path).unwrap(), script, "{name}");
        }
    }
}
