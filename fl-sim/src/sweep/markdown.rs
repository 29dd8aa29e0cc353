//! The tables of a sweep as a section of a Markdown file, so that no figure in it is typed by hand.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};

use super::outcome::{Outcome, PhaseOutcome};
use super::phase::Phase;
use super::text::cells;

/// The section of a sweep. `name`: of its file. `command`: what made it. `note`: where and when it ran.
pub(super) fn section(name: &str, command: &str, note: &str, outcome: &Outcome) -> String {
    let mut out = format!("## {name}\n\n    {command}\n\n");
    if !note.is_empty() {
        let _ = writeln!(out, "{note}\n");
    }
    if outcome.quick {
        out.push_str("The quick form, too short for a figure to be cited.\n\n");
    }
    for phase in outcome.phases.iter().rev() {
        write_phase(&mut out, phase);
    }
    out
}

fn write_phase(out: &mut String, outcome: &PhaseOutcome) {
    let title = match outcome.phase {
        Phase::Choose => "Choice",
        Phase::Report => "Report",
    };
    let _ = writeln!(out, "{title}: {}.\n", outcome.about("bold:"));
    for (at, line) in cells(outcome).into_iter().enumerate() {
        let is_bold = at > 0 && outcome.phase == Phase::Choose && outcome.rows[at - 1].chosen;
        let cells = line.iter().map(|cell| match (is_bold, cell.is_empty()) {
            (true, false) => format!("**{}**", escape(cell)),
            _ => escape(cell),
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if at == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
        }
    }
    out.push('\n');
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('\n', " ")
}

/// `page` with the section of `name` replaced, or added at its end.
///
/// # Errors
/// If the page has the beginning of the section and not its end.
pub(super) fn place(page: &str, name: &str, section: &str) -> anyhow::Result<String> {
    ensure!(
        !name.contains("--") && !name.contains('\n'),
        "the name `{name}` cannot be in a comment of a page"
    );
    let begin = format!("<!-- sweep {name}: begin; generated -->\n");
    let end = format!("<!-- sweep {name}: end -->\n");
    let section = format!("{begin}\n{section}{end}");
    let Some((before, rest)) = page.split_once(&begin) else {
        let page = page.trim_end();
        let between = if page.is_empty() { "" } else { "\n\n" };
        return Ok(format!("{page}{between}{section}"));
    };
    let (_, after) = rest
        .split_once(&end)
        .with_context(|| format!("has no line `{}`", end.trim_end()))?;
    Ok(format!("{before}{section}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::{FILE, read};
    use super::super::summary::tests::group;
    use super::*;

    fn made(label: &str) -> String {
        let mut groups = [
            group("fp32", 0, &[&[0.5, 0.8]], 1000),
            group("ours", 0, &[&[0.4, 0.7]], 10),
        ];
        groups[1].label = label.to_owned();
        let outcome = Outcome {
            quick: false,
            builds: Vec::new(),
            phases: vec![PhaseOutcome::of(&read(FILE).unwrap(), Phase::Choose, &groups)],
        };
        section("tiny", "fl-sim sweep tiny.toml", "machine B", &outcome)
    }

    #[test]
    fn a_table_has_as_many_cells_in_every_line() {
        let text = made("a|b");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 4);
        let count = |line: &str| line.replace("\\|", "").matches('|').count();
        assert!(lines.iter().all(|line| count(line) == count(lines[0])), "{text}");
        assert!(text.contains("| **ours** | **0: a\\|b** | **70.00** |"), "{text}");
    }

    #[test]
    fn a_section_is_replaced_or_added() {
        let first = place("# Experiments\n", "tiny", &made("a")).unwrap();
        assert!(first.starts_with("# Experiments\n\n<!-- sweep tiny: begin"), "{first}");
        assert_eq!(place(&first, "tiny", &made("a")).unwrap(), first);
        let both = place(&first, "other", &made("c")).unwrap();
        let changed = place(&both, "tiny", &made("b")).unwrap();
        assert!(
            changed.contains("0: b") && changed.contains("0: c") && !changed.contains("0: a"),
            "{changed}"
        );
        let broken = first.replace("<!-- sweep tiny: end -->\n", "");
        let error = place(&broken, "tiny", "").unwrap_err().to_string();
        assert!(error.contains("has no line `<!-- sweep tiny: end -->`"), "{error}");
    }
}
