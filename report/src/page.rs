//! The page: one HTML file that holds its style, its scripts and its data, and asks no network for anything.
//!
//! `page/` has its parts. A page of a running server holds no data: it fetches the report and is told of changes.

use crate::error::Error;
use crate::report::Report;

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
    let json = serde_json::to_string(report).map_err(|e| Error::form("HTML")(e.to_string()))?;
    let json = json.replace('<', "\\u003c");
    let data = format!("<script type=\"application/json\" id=\"report\">{json}</script>");
    Ok(assemble(
        &format!("{}: communication report", report.run.name),
        "report",
        &data,
    ))
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
        assert_eq!(serde_json::from_str::<Report>(data).unwrap(), report);
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
