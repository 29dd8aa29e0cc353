//! Spec files: the keys of `[compression.uplink]` of a run.

use std::fs::File;
use std::path::Path;

use fl_compress::Spec;

use crate::failure::Failure;

// Longest spec file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the spec file at `path`; `budget` replaces its own.
pub(crate) fn read(path: &Path, budget: Option<&str>) -> Result<Spec, Failure> {
    let usage = |why: &dyn std::fmt::Display| Failure::Usage(format!("spec {}: {why}", path.display()));
    let text = File::open(path).and_then(|file| fl_compress::text::read(file, MAX_BYTES));
    let text = text.map_err(|why| usage(&why))?;
    let spec: Spec = toml::from_str(&text).map_err(|why| usage(&explained(&text, &why)))?;
    let Some(budget) = budget else { return Ok(spec) };
    // Parses the budget as part of the spec, so that the same checks apply to it.
    let mut table: toml::Table = toml::from_str(&text).map_err(|why| usage(&explained(&text, &why)))?;
    table.insert("budget".to_owned(), toml::Value::String(budget.to_owned()));
    let spec = toml::Value::Table(table).try_into();
    spec.map_err(|why: toml::de::Error| Failure::Usage(format!("--budget {budget}: {}", why.message())))
}

/// The error on one line, with line, column and text: the message of the parser takes five lines.
fn explained(text: &str, why: &toml::de::Error) -> String {
    let message = why.message().trim();
    let hint = if message.contains("unknown field `compression`") {
        " (a spec has the keys of [compression.uplink], without that heading)"
    } else {
        ""
    };
    let Some(start) = why
        .span()
        .map(|span| span.start)
        .filter(|&at| text.is_char_boundary(at))
    else {
        return format!("{message}{hint}");
    };
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let number = text[..start].matches('\n').count() + 1;
    let column = text[line_start..start].chars().count() + 1;
    let line = text[line_start..].lines().next().unwrap_or_default().trim();
    format!("line {number}, column {column}: {message}{hint}, in `{line}`")
}
