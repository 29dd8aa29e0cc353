//! Forms for programs: what is read back is what was written, whatever the names are.

#![allow(clippy::unwrap_used)]

mod made;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use bytes::Bytes;
use fl_report::{By, Column, Filter, Table, Values, csv, parquet, table_text, tensorboard};
use made::{made, names};

fn hostile() -> Vec<String> {
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
    let table = report.table(By::Participation, &Filter::default()).unwrap();
    let bytes = csv(&table).unwrap();
    let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
    let heads: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
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
    let table = report.table(By::Client, &Filter::default()).unwrap();
    let text = table_text(&table);
    assert_eq!(text.lines().count(), 1 + hostile().len());
    assert!(!text.contains(['\r', '\t', '\u{1b}', '\u{202e}']));
    assert!(text.lines().all(|line| line.chars().count() < 250));
}

#[test]
fn every_table_comes_back_from_parquet_value_by_value() {
    let report = made(3, &hostile(), 3);
    for by in By::ALL {
        let table = report.table(by, &Filter::default()).unwrap();
        let bytes = parquet(&report.run, by.name(), &table).unwrap();
        assert_eq!(
            bytes,
            parquet(&report.run, by.name(), &table).unwrap(),
            "the same table, the same bytes"
        );
        same(&table, bytes);
    }
}

fn same(table: &Table, bytes: Vec<u8>) {
    let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    let mut rows = 0;
    for (number, row) in reader.get_row_iter(None).unwrap().enumerate() {
        rows += 1;
        for (column, (name, field)) in table.columns.iter().zip(row.unwrap().get_column_iter()) {
            assert_eq!(column.name, name);
            assert_eq!(*field, expected(column, number), "{name} of row {number}");
        }
    }
    assert_eq!(rows, table.len());
}

fn expected(column: &Column, row: usize) -> Field {
    match &column.values {
        Values::Integers(values) => Field::ULong(values[row]),
        Values::Numbers(values) => values[row].map_or(Field::Null, Field::Double),
        Values::Flags(values) => Field::Bool(values[row]),
        Values::Texts(values) => Field::Str(values[row].clone()),
    }
}

#[test]
fn parquet_says_of_which_run_it_is_and_what_its_columns_are() {
    let report = made(1, &names(1), 3);
    let table = report.table(By::Round, &Filter::default()).unwrap();
    let bytes = Bytes::from(parquet(&report.run, "round", &table).unwrap());
    let reader = SerializedFileReader::new(bytes).unwrap();
    let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let of = |key: &str| {
        let found = metadata.iter().find(|pair| pair.key == key);
        found.and_then(|pair| pair.value.clone()).unwrap()
    };
    assert_eq!(
        (of("fl.schema").as_str(), of("fl.table").as_str(), of("fl.run").as_str()),
        ("1", "round", "digits")
    );
    let columns: serde_json::Value = serde_json::from_str(&of("fl.columns")).unwrap();
    assert_eq!(columns["socket_up"]["unit"], "B");
    assert_eq!(columns["accuracy"]["type"], "number");
}

#[test]
fn an_empty_table_is_a_file_in_every_form() {
    let report = made(0, &[], 3);
    let table = report.table(By::Participation, &Filter::default()).unwrap();
    assert!(table.is_empty());
    assert_eq!(String::from_utf8(csv(&table).unwrap()).unwrap().lines().count(), 1);
    same(&table, parquet(&report.run, "participation", &table).unwrap());
    assert_eq!(table_text(&table).lines().count(), 1);
}

#[test]
fn numbers_beyond_half_of_their_range_are_unsigned_in_parquet() {
    let table = Table {
        columns: vec![Column {
            name: "bytes",
            unit: "B",
            about: "Bytes.",
            values: Values::Integers(vec![0, u64::MAX]),
        }],
    };
    same(&table, parquet(&made(0, &[], 1).run, "x", &table).unwrap());
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

fn sum(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap())
}

fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}
