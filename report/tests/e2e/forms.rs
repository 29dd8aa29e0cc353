//! Machine-readable forms round-trip for any names.

use fl_report::{Answer, Asked, FORMS, Filter, Form, Query, Table, Values, csv, table_text, tensorboard};

use crate::fixtures::{made, names};
use crate::measured::measured;

pub(crate) fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "a,b",
        "a\"b",
        "a\nb",
        "a\r\nb",
        "=cmd|' /C calc'!A0",
        "@x",
        "+1",
        "-",
        "'",
        " ",
        "",
        "\u{202e}x",
        "NULL",
        "\t",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("n".repeat(200));
    names
}

fn texts(table: &Table, name: &str) -> Vec<String> {
    match &table.column(name).unwrap().values {
        Values::Texts(texts) => texts.clone(),
        _ => panic!("{name} is no text"),
    }
}

#[test]
fn hostile_names_come_back_from_csv_as_they_are() {
    let report = made(2, &hostile(), 3);
    let table = report
        .table(Query::named("participation").unwrap(), &Filter::default())
        .unwrap();
    let bytes = csv(&table).unwrap();
    let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
    let heads: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let columns: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(heads, columns);
    let rows: Vec<::csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    let place = columns.iter().position(|name| *name == "client").unwrap();
    let found: Vec<&str> = rows.iter().map(|row| &row[place]).collect();
    assert_eq!(found, texts(&table, "client"));
    let loss = columns.iter().position(|name| *name == "loss").unwrap();
    assert_eq!(&rows[0][loss], "2");
    assert!(rows.iter().all(|row| row.len() == columns.len()));
}

#[test]
fn hostile_names_leave_a_text_table_one_line_a_row() {
    let report = made(1, &hostile(), 3);
    let table = report
        .table(Query::named("client").unwrap(), &Filter::default())
        .unwrap();
    let text = table_text(&table);
    assert_eq!(text.lines().count(), 1 + hostile().len());
    assert!(!text.contains(['\r', '\t', '\u{1b}', '\u{202e}']));
    assert!(text.lines().all(|line| line.chars().count() < 250));
}

#[test]
fn an_empty_table_is_a_file_in_every_form() {
    let report = made(0, &[], 3);
    let table = report
        .table(Query::named("participation").unwrap(), &Filter::default())
        .unwrap();
    assert!(table.is_empty());
    assert_eq!(String::from_utf8(csv(&table).unwrap()).unwrap().lines().count(), 1);
    assert_eq!(table_text(&table).lines().count(), 1);
}

#[test]
fn an_event_file_has_a_record_for_each_closed_round_and_takes_its_clock_from_the_run() {
    let mut report = made(3, &names(2), 3);
    report.rounds[2].closed = false;
    let file = tensorboard(&report);
    assert_eq!(file.name, "events.out.tfevents.1700000000.fl-report");
    assert_eq!(file, tensorboard(&report));
    let mut rest = file.bytes.as_slice();
    let mut records = Vec::new();
    while !rest.is_empty() {
        let len = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(sum(&rest[8..12]), masked(&rest[..8]));
        let data = &rest[12..12 + len];
        assert_eq!(sum(&rest[12 + len..16 + len]), masked(data));
        records.push(data);
        rest = &rest[16 + len..];
    }
    assert_eq!(records.len(), 3);
    assert!(records[0].ends_with(b"brain.Event:2"));
    let wall = f64::from_le_bytes(records[2][1..9].try_into().unwrap());
    assert_eq!(wall, 1_700_000_004.0 + 3.5);
    let has = |tag: &[u8]| records[2].windows(tag.len()).any(|window| window == tag);
    assert!(has(b"accuracy") && has(b"loss/train") && has(b"bytes_up/update") && has(b"density/down"));
}

#[test]
fn an_event_file_has_the_metrics_and_the_perplexity() {
    let file = tensorboard(&measured(2, &names(2), 3));
    let has = |tag: &str| file.bytes.windows(tag.len()).any(|window| window == tag.as_bytes());
    assert!(has("train/grad/norm") && has("evaluation/bleu") && has("perplexity") && !has("accuracy"));
}

fn sum(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap())
}

fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[test]
fn every_form_writes_what_it_shows_and_refuses_the_rest_by_name() {
    let report = made(3, &names(2), 3);
    let (query, filter) = (Query::named("stage").unwrap(), Filter::default());
    let table = report.table(query, &filter).unwrap();
    let comparison = report.against(fl_report::Against::FedAvg(4));
    let scaled = report.scaled("devices=10,rounds=10".parse().unwrap(), None).unwrap();
    let answers = [
        (Asked::Whole, Answer::Whole(&report)),
        (
            Asked::Table,
            Answer::Table {
                report: &report,
                query,
                filter: &filter,
                table: &table,
            },
        ),
        (Asked::Comparison, Answer::Comparison(&report, &comparison)),
        (Asked::Estimate, Answer::Scaled(&scaled)),
    ];
    for form in FORMS {
        assert!(std::ptr::eq(Form::named(form.name).unwrap(), *form));
        for (asked, answer) in &answers {
            let written = form.write(answer);
            if form.name == "parquet" && cfg!(not(feature = "parquet")) && form.shows.contains(asked) {
                assert!(written.unwrap_err().to_string().contains("--features parquet"));
                continue;
            }
            assert_eq!(written.is_ok(), form.shows.contains(asked), "{} {asked:?}", form.name);
            if let Err(refused) = written {
                assert!(
                    refused
                        .to_string()
                        .starts_with(&format!("{} shows the whole run", form.name)),
                    "{refused}"
                );
                assert!(
                    refused.to_string().ends_with("text, json") || *asked != Asked::Estimate,
                    "{refused}"
                );
            }
        }
    }
}
