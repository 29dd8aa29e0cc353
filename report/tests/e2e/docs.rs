//! The docs list the questions, forms and columns of the code.

use std::fmt::Write as _;

use fl_report::{Column, FORMS, Flow, QUERIES, schemas};

const DOC: &str = include_str!("../../../docs/reference/report-columns.md");
const GUIDE: &str = include_str!("../../../docs/guide/reading-a-report.md");
const BEGIN: &str = "<!-- columns: begin; generated: UPDATE_DOCS=1 cargo test -p fl-report --test e2e docs -->\n";
const END: &str = "<!-- columns: end -->";

fn listed() -> String {
    let mut out = String::new();
    // Three tables end with the same traffic columns, which the docs list once.
    let mut flow = Vec::new();
    for schema in schemas() {
        let _ = write!(out, "\n### {}\n\n{}\n\n", schema.name, schema.about);
        let mut columns = schema.table().columns;
        let first = columns.len().saturating_sub(Flow::FIELDS);
        let has_flow = columns[first..].iter().map(|column| &*column.name).eq(Flow::NAMES);
        if has_flow {
            flow = columns.split_off(first);
        }
        table(&mut out, &columns);
        if has_flow {
            out.push_str("| the columns of [flow](#flow) | | | |\n");
        }
    }
    out.push_str("\n### flow\n\nWhat the bytes on the sockets were for: the last columns of rounds, clients and ");
    out.push_str("participations, and the keys of `totals`.\n\n");
    table(&mut out, &flow);
    out.push('\n');
    out
}

fn table(out: &mut String, columns: &[Column]) {
    out.push_str("| column | type | unit | what |\n|---|---|---|---|\n");
    for column in columns {
        let (name, kind, unit, about) = (&column.name, column.values.kind(), column.unit, column.about);
        let _ = writeln!(out, "| `{name}` | {kind} | {unit} | {about} |");
    }
}

#[test]
fn the_columns_in_the_docs_are_those_of_the_code() {
    let (before, rest) = DOC.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let listed = listed();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/report-columns.md");
        std::fs::write(path, [before, BEGIN, &listed, END, after].concat()).unwrap();
        return;
    }
    assert!(
        found == listed,
        "put this between the marks in docs/reference/report-columns.md:\n{listed}"
    );
}

#[test]
fn every_question_and_every_form_is_in_the_docs() {
    for query in QUERIES {
        let option = format!("--by {}`", query.name);
        assert!(
            GUIDE.contains(&option),
            "docs/guide/reading-a-report.md lacks `{option}"
        );
    }
    for form in FORMS {
        let row = format!("| `{}` | {} |", form.name, form.about);
        assert!(
            DOC.contains(&row),
            "docs/reference/report-columns.md lacks the row {row}"
        );
    }
}
