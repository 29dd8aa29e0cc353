//! A comparison as text.

use std::fmt::Write as _;

use crate::against::comparison::Comparison;
use crate::text::number::name;
use crate::text::table;

impl Comparison {
    /// Formats the comparison for a person.
    pub fn text(&self) -> String {
        let mut out = format!("Against {}\n", name(&self.against));
        for note in &self.notes {
            let _ = writeln!(out, "{note}");
        }
        for (title, table) in [
            ("Totals", &self.totals),
            (
                "Bytes moved when an accuracy or a perplexity was first reached",
                &self.reach,
            ),
            ("Rounds", &self.rounds),
        ] {
            if !table.is_empty() {
                let _ = writeln!(out, "\n{title}");
                table::write(&mut out, table);
            }
        }
        out
    }
}
