//! Spec files: what stands under `[compression.uplink]` of a run.

use std::path::Path;

use fl_compress::Spec;

use crate::failure::Failure;

/// The spec in the file at `path`, with `budget` in the place of its own.
pub(crate) fn read(path: &Path, budget: Option<&str>) -> Result<Spec, Failure> {
    let usage = |why: &dyn std::fmt::Display| Failure::Usage(format!("spec {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|why| usage(&why))?;
    let spec: Spec = toml::from_str(&text).map_err(|why| usage(&explained(&text, &why)))?;
    let Some(budget) = budget else { return Ok(spec) };
    // The spec's own rules judge the budget: what is not of the form of its key `budget` is refused by them.
    let mut table: toml::Table = toml::from_str(&text).map_err(|why| usage(&explained(&text, &why)))?;
    table.insert("budget".to_owned(), toml::Value::String(budget.to_owned()));
    let spec = toml::Value::Table(table).try_into();
    spec.map_err(|why: toml::de::Error| Failure::Usage(format!("--budget {budget}: {}", why.message())))
}

/// Line, column and text of what is wrong: the parser's own picture takes five lines.
fn explained(text: &str, why: &toml::de::Error) -> String {
    let message = why.message().trim();
    let hint = if message.contains("unknown field `compression`") {
        " (a spec holds what stands under [compression.uplink], without that heading)"
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
