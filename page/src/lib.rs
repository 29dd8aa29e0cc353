//! The pages: each one HTML file that holds its style, its scripts and its data, and makes no network request.
//!
//! The page of a running server holds no data: it fetches the report and subscribes to changes.

use serde::Serialize;

const TEMPLATE: &str = include_str!("../page.html");
const STYLE: &str = include_str!("../page.css");
const CHARTS: &str = include_str!("../charts.js");
macro_rules! scripts {
    ($($name:literal)*) => { [$( include_str!(concat!("../js/", $name, ".js")) ),*] };
}
/// In the order of `assemble.mjs`: each script uses those before it, and the last one of a page starts it.
const SHARED: &[&str] = &scripts!("format" "dom" "table" "scale" "plot" "figure" "bars" "shell");

/// A page that is not filled yet.
#[derive(Debug)]
pub struct Page {
    /// The scripts of this page alone, which follow the shared ones.
    scripts: &'static [&'static str],
    /// What a reader does who allows no scripts.
    instead: &'static str,
}

/// The page of a report, as a file and of a running server. Its data: a report.
pub static REPORT: Page = Page {
    scripts: &scripts!("heat" "bytes" "learning" "time" "clients" "head" "overview" "proof" "live" "page"),
    instead: "run fl-server report with --format text or csv",
};
/// The page of a sweep. Its data: what `js/sweep.js` reads.
pub static SWEEP: Page = Page {
    scripts: &scripts!("sweep"),
    instead: "read trials.csv beside it",
};
/// The page of a comparison of codecs. Its data: `fl-compress compare --format json`.
pub static COMPARE: Page = Page {
    scripts: &scripts!("compare"),
    instead: "run fl-compress compare with --format text or json",
};

impl Page {
    /// Writes the page with `data`, to be opened as a file.
    ///
    /// # Errors
    /// If the data cannot be JSON.
    pub fn with_data(&self, title: &str, data: &impl Serialize) -> serde_json::Result<String> {
        // JSON may escape `<`, so that no text in the data can close the element.
        let json = serde_json::to_string(data)?.replace('<', "\\u003c");
        let data = format!("<script type=\"application/json\" id=\"data\">{json}</script>");
        // No text in the data can contain the digest of the data, so none can guess the nonce.
        let nonce = blake3::hash(data.as_bytes()).to_hex();
        Ok(self.assemble(title, &nonce[..32], &data))
    }

    /// Writes the page without data. `nonce`: letters and digits drawn for this process; a script runs only with it.
    pub fn live(&self, title: &str, nonce: &str) -> String {
        self.assemble(title, nonce, "")
    }

    fn assemble(&self, title: &str, nonce: &str, data: &str) -> String {
        let mut out = String::with_capacity(TEMPLATE.len() + STYLE.len() + CHARTS.len() + data.len() + 200_000);
        let mut rest = TEMPLATE;
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
                "INSTEAD" => out.push_str(self.instead),
                "SCRIPT" => SHARED.iter().chain(self.scripts).for_each(|script| {
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
}

/// Escapes text for an element or an attribute.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_are_those_that_the_pages_own_tool_puts_together() {
        let tool = include_str!("../assemble.mjs");
        let read = |name: &str| {
            let path = format!("{}/js/{name}.js", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        for (name, page) in [("REPORT", &REPORT), ("SWEEP", &SWEEP), ("COMPARE", &COMPARE)] {
            let own = format!("{name} = {{ scripts: [");
            let lists = ["SHARED = [", &own].map(|list| tool.split_once(list).unwrap().1.split_once(']').unwrap().0);
            let names = lists.iter().flat_map(|list| list.split('"').skip(1).step_by(2));
            let scripts = names.map(read).collect::<Vec<_>>().join("\n");
            assert!(page.live("digits", "abc").contains(&scripts), "{name}");
            assert!(tool.contains(page.instead), "{name}");
        }
    }

    #[test]
    fn no_page_asks_the_network_and_no_text_leaves_its_place() {
        let text = "</script><script>alert(1)</script>";
        for page in [&REPORT, &SWEEP, &COMPARE] {
            let page = page.with_data(text, &text).unwrap();
            assert!(!page.contains("<!--") && page.trim_end().ends_with("</html>"));
            for part in [
                "<script>",
                "src=\"http",
                "src='http",
                "href=\"http",
                "url(http",
                "@import",
            ] {
                assert!(!page.contains(part), "{part}");
            }
            let (_, data) = page.split_once("id=\"data\">").unwrap();
            let data: String = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
            assert_eq!(data, text);
        }
    }
}
