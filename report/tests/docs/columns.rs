//! docs/reference/report-columns.md lists every column as the code has it.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use fl_report::{Table, schemas};

const BEGIN: &str = "<!-- columns: begin; a test compares this part with the code and prints what it should be -->\n";
const END: &str = "<!-- columns: end -->";

fn listed() -> String {
    let mut out = String::new();
    // The columns of a flow stand in three tables and are listed once.
    let flow = flow(&schemas()[0].2);
    for (name, about, table) in schemas() {
        let _ = write!(out, "\n### {name}\n\n{about}\n\n");
        let own = table
            .columns
            .iter()
            .position(|column| column.name == flow.columns[0].name);
        let has_flow = own.is_some() && table.column("download_ms").is_some();
        let mut rest = Vec::new();
        out.push_str("| column | type | unit | what |\n|---|---|---|---|\n");
        for column in &table.columns {
            if has_flow && flow.column(column.name).is_some() {
                rest.push(column.name);
                continue;
            }
            line(&mut out, column);
        }
        if has_flow {
            assert_eq!(rest.len(), flow.columns.len());
            out.push_str("| the columns of [flow](#flow) | | | |\n");
        }
    }
    out.push_str("\n### flow\n\nWhat the bytes on the sockets were for; the last columns of rounds, clients and ");
    out.push_str("participations, and the keys of `totals`.\n\n| column | type | unit | what |\n|---|---|---|---|\n");
    flow.columns.iter().for_each(|column| line(&mut out, column));
    out.push('\n');
    out
}

fn line(out: &mut String, column: &fl_report::Column) {
    let (name, kind, unit, about) = (column.name, column.values.kind(), column.unit, column.about);
    let _ = writeln!(out, "| `{name}` | {kind} | {unit} | {about} |");
}

fn flow(rounds: &Table) -> Table {
    let first = rounds
        .columns
        .iter()
        .position(|column| column.name == "update")
        .unwrap();
    let columns = rounds.columns[first..first + fl_report::Flow::FIELDS].to_vec();
    Table { columns }
}

#[test]
fn the_columns_in_the_docs_are_those_of_the_code() {
    let doc = include_str!("../../docs/reference/report-columns.md");
    let (_, rest) = doc.split_once(BEGIN).unwrap();
    let (found, _) = rest.split_once(END).unwrap();
    let listed = listed();
    assert!(
        found == listed,
        "put this between the marks in docs/reference/report-columns.md:\n{listed}"
    );
}
