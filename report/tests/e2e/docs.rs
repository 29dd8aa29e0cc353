//! The docs list the questions, forms and columns of the code.

use std::fmt::Write as _;

use fl_report::{Column, FORMS, Flow, QUERIES, schemas};

const DOC: &str = include_str!("../../../docs/reference/report-columns.md");
const GUIDE: &str = include_str!("../../../docs/guide/reading-a-report.md");
const BEGIN: &str = "<!-- columns: begin; generated: UPDATE_DOCS=1 cargo test -p fl-report --test e2e docs -->\n";
const END: &str = "<!-- columns: end -->";

/// Columns in a row that an earlier table lists as well, from which on the docs refer to that table.
const SHARED: usize = 6;

fn listed() -> String {
    let tables: Vec<_> = schemas().map(|schema| (schema, schema.table().columns)).collect();
    let ends = tables
        .iter()
        .filter_map(|(_, columns)| columns.get(columns.len().checked_sub(Flow::FIELDS)?..));
    let mut flows = ends.filter(|end| end.iter().map(|column| &*column.name).eq(Flow::NAMES));
    let flow = flows.next().unwrap();
    let mut out = String::new();
    let mut earlier = vec![("flow", flow)];
    for (schema, columns) in &tables {
        let _ = write!(out, "\n### {}\n\n{}\n\n", schema.name, schema.about);
        table(&mut out, columns, &earlier);
        earlier.push((schema.name, columns.as_slice()));
    }
    out.push_str("\n### flow\n\nWhat the bytes on the sockets were for: the last columns of rounds, clients and ");
    out.push_str("participations, and the keys of `totals`.\n\n");
    table(&mut out, flow, &[]);
    out.push('\n');
    out
}

fn table(out: &mut String, columns: &[Column], earlier: &[(&str, &[Column])]) {
    out.push_str("| column | type | unit | what |\n|---|---|---|---|\n");
    let mut rest = columns;
    while let Some((column, others)) = rest.split_first() {
        let runs = earlier
            .iter()
            .flat_map(|(name, listed)| (0..listed.len()).map(move |from| (common(rest, &listed[from..]), name)));
        if let Some((length, table)) = runs.rev().max_by_key(|(length, _)| *length)
            && length >= SHARED
        {
            let (first, last, anchor) = (&rest[0].name, &rest[length - 1].name, table.replace(' ', "-"));
            let _ = writeln!(out, "| `{first}` to `{last}` | | | as in [{table}](#{anchor}) |");
            rest = &rest[length..];
            continue;
        }
        let (name, kind, unit, about) = (&column.name, column.values.kind(), column.unit, column.about);
        let _ = writeln!(out, "| `{name}` | {kind} | {unit} | {about} |");
        rest = others;
    }
}

/// Number of equal columns at the beginning of both.
fn common(left: &[Column], right: &[Column]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
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
