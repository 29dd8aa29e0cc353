//! Golden files of every form of a small report. `UPDATE_GOLDEN=1` rewrites them; review the diff.

use std::path::Path;

use fl_report::{Against, Costs, CostsPlan, Filter, QUERIES, Query, Report, csv, json, table_json, table_text, text};

use crate::fixtures::{made, names};
use crate::measured::measured;

fn small() -> Report {
    let mut names = names(2);
    names.push("Zoë, \"the\n= camera".to_owned());
    let mut report = made(4, &names, 7);
    let plan = "currency = 'EUR'\ncarbon_g_per_kwh = 400\n[link]\nprice_per_gb_down = 0.09\nkwh_per_gb = 0.05\n\
                [[links]]\nclients = ['Zo*']\nprice_per_gb_up = 2";
    report.costs = Some(Costs::of(&report, &CostsPlan::from_toml(plan).unwrap()));
    report
}

fn is_golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(golden == found, "{name} has changed; it is now:\n{found}");
}

#[test]
fn the_whole_report_as_text_is_golden() {
    is_golden("report.txt", &text(&small()));
}

#[test]
fn the_whole_report_as_json_is_golden_and_is_read_back() {
    let report = small();
    let text = json(&report).unwrap();
    is_golden("report.json", &text);
    assert!(serde_json::from_str::<Report>(&text).unwrap() == report);
}

#[test]
fn a_report_of_metrics_and_perplexity_is_golden_and_is_read_back() {
    let report = measured(4, &names(2), 7);
    is_golden("metrics.txt", &text(&report));
    for name in ["round", "participation"] {
        let table = report.table(Query::named(name).unwrap(), &Filter::default()).unwrap();
        is_golden(&format!("metrics-{name}.txt"), &table_text(&table));
        is_golden(
            &format!("metrics-{name}.csv"),
            &String::from_utf8(csv(&table).unwrap()).unwrap(),
        );
    }
    assert!(serde_json::from_str::<Report>(&json(&report).unwrap()).unwrap() == report);
    let other = measured(3, &names(3), 8);
    is_golden("metrics-against.txt", &report.against(Against::Run(&other)).text());
}

#[test]
fn the_answer_of_every_question_is_golden_as_text_and_csv() {
    let report = small();
    for query in QUERIES {
        let table = report.table(query, &Filter::default()).unwrap();
        is_golden(&format!("{}.txt", query.name), &table_text(&table));
        is_golden(
            &format!("{}.csv", query.name),
            &String::from_utf8(csv(&table).unwrap()).unwrap(),
        );
    }
}

#[test]
fn an_answer_as_json_says_what_was_asked_and_what_its_columns_are() {
    let report = small();
    let filter = Filter {
        round: Some(2),
        client: None,
    };
    let query = Query::named("direction").unwrap();
    let table = report.table(query, &filter).unwrap();
    is_golden("direction.json", &table_json(&report, query, &filter, &table).unwrap());
}

#[test]
fn comparisons_as_text_are_golden() {
    let report = small();
    is_golden(
        "against-fp32.txt",
        &report.against(Against::baseline("fedavg-fp32").unwrap()).text(),
    );
    is_golden(
        "against-fp16.txt",
        &report.against(Against::baseline("fp16").unwrap()).text(),
    );
    let mut other = made(6, &names(2), 8);
    other.run.name = "digits-dense".into();
    other.run.parameters += 10;
    is_golden("against-run.txt", &report.against(Against::Run(&other)).text());
}

#[test]
fn a_run_without_a_round_is_a_page_too() {
    let mut report = made(0, &[], 1);
    report.run.state = "waiting".into();
    report.run.opened_ms = 0;
    report.run.chain = String::new();
    is_golden("empty.txt", &text(&report));
}

#[test]
fn what_is_unaccounted_for_is_said_twice() {
    let mut report = small();
    report.balanced = false;
    report.rounds[2].balanced = false;
    let text = text(&report);
    assert_eq!(text.matches("NOT EQUAL").count(), 2);
    assert!(text.contains("Rounds that are not equal: 3\n"));
}
