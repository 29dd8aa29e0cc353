//! Formats numbers and tables as text.

/// A table with text columns on the left and right-aligned numbers.
#[derive(Debug)]
pub(crate) struct Table {
    /// Number of text columns.
    words: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings; the first `words` columns are text.
    pub(crate) fn new(words: usize, headings: &[&str]) -> Self {
        Self {
            words,
            rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()],
        }
    }

    /// Adds a row. Escapes control characters, which tensor names may contain and a terminal would interpret.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell: String| {
                    if cell.contains(char::is_control) {
                        cell.escape_debug().to_string()
                    } else {
                        cell
                    }
                })
                .collect(),
        );
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths = vec![0; columns];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let cell = if column < self.words {
                    format!("{cell:<width$}  ")
                } else {
                    format!("{cell:>width$}  ")
                };
                line.push_str(&cell);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits, or the whole integer part; scientific notation below 0.01.
pub(crate) fn significant(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    if magnitude < 0.00995 {
        return format!("{number:.2e}");
    }
    let places = match magnitude {
        0.0..0.09995 => 4,
        0.0..0.9995 => 3,
        0.0..9.995 => 2,
        0.0..99.95 => 1,
        _ => 0,
    };
    format!("{number:.places$}")
}

/// [`significant`], or a dash for an undefined number.
pub(crate) fn or_dash(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), significant)
}

/// `part / whole`; `None` if `whole` is zero.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let short = [0.0, 0.00012, 0.0123, 0.5, 0.99996, 51.94, 999.96, 1234.4].map(significant);
        assert_eq!(
            short,
            ["0", "1.20e-4", "0.0123", "0.500", "1.00", "51.9", "1000", "1234"]
        );
    }

    #[test]
    fn numbers_are_flush_right() {
        let mut table = Table::new(1, &["name", "bytes"]);
        table.row(vec!["a.long.name".to_owned(), "7".to_owned()]);
        assert_eq!(table.render(), "name         bytes\na.long.name      7\n");
    }
}
