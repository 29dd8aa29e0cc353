//! What a `check` command found: lines, each good, a warning or wrong, with what to do.

use std::fmt::Write as _;

use serde::Serialize;

use crate::printable::printable;
use crate::{Format, out};

/// How good a line is. The order is that of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, but somebody should look at it.
    Warning,
    /// It does not work.
    Wrong,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
        }
    }
}

/// What was found of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The thing: `certificate`, `task digits`.
    pub check: String,
    /// How good it is.
    pub level: Level,
    /// What was found.
    pub text: String,
    /// What to do; absent from a good line, and where the text says it.
    #[serde(rename = "do")]
    pub todo: Option<String>,
    /// Further lines of text, such as the rows of a table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Whether the cause is another machine, or the way to it.
    #[serde(skip)]
    pub is_remote: bool,
}

impl Line {
    /// A line about something that is as it should be.
    pub fn good(check: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            level: Level::Good,
            text: text.into(),
            todo: None,
            details: Vec::new(),
            is_remote: false,
        }
    }

    /// A line about something that somebody should look at.
    pub fn warning(check: impl Into<String>, text: impl Into<String>, todo: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            todo: Some(todo.into()),
            ..Self::good(check, text)
        }
    }

    /// A line about something that does not work.
    pub fn wrong(check: impl Into<String>, text: impl Into<String>, todo: impl Into<String>) -> Self {
        Self {
            level: Level::Wrong,
            ..Self::warning(check, text, todo)
        }
    }

    /// A line about something that does not work, whose `error` says what to do.
    pub fn failed(check: impl Into<String>, error: impl Into<String>) -> Self {
        Self {
            level: Level::Wrong,
            ..Self::good(check, error)
        }
    }

    /// With further lines of text.
    #[must_use]
    pub fn with_details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    /// A line whose cause is another machine, or the way to it.
    #[must_use]
    pub fn remote(self) -> Self {
        Self {
            is_remote: true,
            ..self
        }
    }

    fn shown(&self) -> String {
        let mut shown = format!("{:<7}  {}: {}\n", self.level.name(), self.check, self.text);
        if let Some(todo) = &self.todo {
            let _ = writeln!(shown, "         -> {todo}");
        }
        for detail in &self.details {
            let _ = writeln!(shown, "  {detail}");
        }
        printable(&shown)
    }

    /// The line as an error text.
    fn fault(&self) -> String {
        match &self.todo {
            Some(todo) => format!("{}: {}; {todo}", self.check, self.text),
            None => format!("{}: {}", self.check, self.text),
        }
    }
}

/// The lines of a `check` command: text is printed line by line, JSON as one object at the end.
#[derive(Debug)]
pub struct Findings {
    format: Format,
    lines: Vec<Line>,
}

impl Findings {
    /// None yet.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            lines: Vec::new(),
        }
    }

    /// Adds lines.
    ///
    /// # Errors
    /// As [`out::line()`].
    pub fn extend(&mut self, lines: impl IntoIterator<Item = Line>) -> anyhow::Result<()> {
        for line in lines {
            if self.format == Format::Text {
                out::text(format_args!("{}", line.shown()))?;
            }
            self.lines.push(line);
        }
        Ok(())
    }

    /// Adds a line.
    ///
    /// # Errors
    /// As [`out::line()`].
    pub fn push(&mut self, line: Line) -> anyhow::Result<()> {
        self.extend([line])
    }

    /// The lines so far.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The worst level of the lines so far.
    pub fn verdict(&self) -> Level {
        self.lines.iter().map(|line| line.level).max().unwrap_or(Level::Good)
    }

    /// The lines that are wrong and `belong`, as one error text; `None` if none is. In text form it only names them: their lines
    /// were printed.
    pub fn faults(&self, belong: impl Fn(&Line) -> bool) -> Option<String> {
        let wrong = self.lines.iter().filter(|line| line.level == Level::Wrong);
        let (before, between) = match self.format {
            Format::Text => ("wrong, as shown above: ", ", "),
            Format::Json => ("", "\n       "),
        };
        let faults: Vec<_> = wrong
            .filter(|line| belong(line))
            .map(|line| match self.format {
                Format::Text => line.check.clone(),
                Format::Json => line.fault(),
            })
            .collect();
        (!faults.is_empty()).then(|| format!("{before}{}", faults.join(between)))
    }
}

/// Rows with columns of equal width; those `to_the_right` are aligned on the right.
pub fn aligned<const N: usize>(rows: &[[String; N]], to_the_right: &[usize]) -> Vec<String> {
    let widths: Vec<usize> = (0..N)
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
                if to_the_right.contains(&at) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_level_what_was_found_what_to_do_and_details() {
        let line = Line::warning("disk", "1 MiB is free", "free some space");
        assert_eq!(
            line.with_details(vec!["a  b".to_owned()]).shown(),
            "warning  disk: 1 MiB is free\n         -> free some space\n  a  b\n"
        );
        assert_eq!(Line::good("clock", "is right").shown(), "good     clock: is right\n");
        let text = Line::good("run", "\x1b[2J").shown();
        assert_eq!(
            text, "good     run: \\u{1b}[2J\n",
            "what a server sends moves no cursor"
        );
    }

    #[test]
    fn faults_are_the_wrong_lines_of_one_side() {
        let mut findings = Findings::new(Format::Json);
        assert_eq!((findings.verdict(), findings.faults(|_| true)), (Level::Good, None));
        let wrong = |check: &str| Line::wrong(check, "is wrong", "change it");
        findings
            .extend([wrong("a"), Line::warning("b", "is odd", "look")])
            .unwrap();
        findings.push(wrong("c").remote()).unwrap();
        assert_eq!(findings.verdict(), Level::Wrong);
        assert_eq!(
            findings.faults(|line| line.is_remote),
            Some("c: is wrong; change it".to_owned())
        );
        assert_eq!(
            findings.faults(|_| true),
            Some("a: is wrong; change it\n       c: is wrong; change it".to_owned())
        );
        let mut printed = Findings::new(Format::Text);
        printed.extend([wrong("a"), wrong("b")]).unwrap();
        let once = printed.faults(|_| true).unwrap();
        assert_eq!(
            once, "wrong, as shown above: a, b",
            "the lines say why, and need not again"
        );
    }
}
