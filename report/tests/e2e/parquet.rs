//! Parquet files round-trip.

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use bytes::Bytes;
use fl_report::{Column, Filter, QUERIES, Query, Table, Values, parquet};

use crate::fixtures::{made, names};
use crate::forms::hostile;
use crate::measured::measured;

#[test]
fn every_table_comes_back_from_parquet_value_by_value() {
    for report in [made(3, &hostile(), 3), measured(3, &hostile(), 3)] {
        for query in QUERIES {
            let table = report.table(query, &Filter::default()).unwrap();
            let bytes = parquet(&report.run, query.name, &table).unwrap();
            assert_eq!(
                bytes,
                parquet(&report.run, query.name, &table).unwrap(),
                "the same table, the same bytes"
            );
            same(&table, bytes);
        }
    }
}

fn same(table: &Table, bytes: Vec<u8>) {
    let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    let mut rows = 0;
    for (number, row) in reader.get_row_iter(None).unwrap().enumerate() {
        rows += 1;
        for (column, (name, field)) in table.columns.iter().zip(row.unwrap().get_column_iter()) {
            assert_eq!(&*column.name, name.as_str());
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
    let table = report
        .table(Query::named("round").unwrap(), &Filter::default())
        .unwrap();
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
fn numbers_beyond_half_of_their_range_are_unsigned_in_parquet() {
    let table = Table {
        columns: vec![Column {
            name: "bytes".into(),
            unit: "B",
            about: "Bytes.",
            values: Values::Integers(vec![0, u64::MAX]),
        }],
    };
    same(&table, parquet(&made(0, &[], 1).run, "x", &table).unwrap());
}

#[test]
fn an_empty_table_is_a_file_too() {
    let report = made(0, &[], 3);
    let query = Query::named("participation").unwrap();
    let table = report.table(query, &Filter::default()).unwrap();
    same(&table, parquet(&report.run, query.name, &table).unwrap());
}
