//! The HTML page is self-contained, and report content cannot escape from its data block.

use fl_report::{live_page, page, page_json};

use crate::tiny::tiny;

#[test]
fn a_page_is_whole_and_its_data_cannot_break_out() {
    let mut report = tiny();
    report.run.name = "</script><script>alert(1)</script>".into();
    let page = page(&report).unwrap();
    assert!(!page.contains("<!--") && page.trim_end().ends_with("</html>"));
    assert!(!page.contains("<script>alert"));
    let data = page
        .split_once("id=\"data\">")
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
        let mut report = tiny();
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
    let sample = include_str!("../../../page/sample.mjs");
    let list = sample
        .split_once("PAGE_PARTICIPATIONS = [")
        .unwrap()
        .1
        .split_once(']')
        .unwrap()
        .0;
    let read: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    let data: serde_json::Value = serde_json::from_str(&page_json(&tiny()).unwrap()).unwrap();
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
    assert!(!page.contains("id=\"data\"") && page.contains("nonce-abc"));
    for from in ["src=\"http", "src='http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(from), "{from}");
    }
}
