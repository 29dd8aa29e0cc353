//! Aligned columns.

/// Columns of cells under heads; texts are aligned left, numbers right.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    columns: Vec<(String, bool, Vec<String>)>,
}

impl Grid {
    pub(crate) fn column(&mut self, head: impl Into<String>, left: bool, cells: Vec<String>) {
        self.columns.push((head.into(), left, cells));
    }

    /// Writes the columns with two spaces between them and none at the end of a line.
    pub(crate) fn write(&self, out: &mut String) {
        let width = |(head, _, cells): &(String, bool, Vec<String>)| {
            let cells = cells.iter().map(|cell| cell.chars().count());
            cells.chain([head.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.columns.iter().map(width).collect();
        let rows = self.columns.iter().map(|column| column.2.len()).max().unwrap_or(0);
        let mut line = String::new();
        for row in 0..=rows {
            line.clear();
            for (place, ((head, left, cells), width)) in self.columns.iter().zip(&widths).enumerate() {
                let cell = match row.checked_sub(1) {
                    None => head.as_str(),
                    Some(row) => cells.get(row).map_or("", String::as_str),
                };
                let rest = width.saturating_sub(cell.chars().count());
                let (before, after) = if *left { (0, rest) } else { (rest, 0) };
                let gap = if place == 0 { 0 } else { 2 };
                pad(&mut line, gap + before);
                line.push_str(cell);
                pad(&mut line, after);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
}

fn pad(line: &mut String, mut spaces: usize) {
    const SPACES: &str = "                                ";
    while spaces > 0 {
        let some = spaces.min(SPACES.len());
        line.push_str(&SPACES[..some]);
        spaces -= some;
    }
}
