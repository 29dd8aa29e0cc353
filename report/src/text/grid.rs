//! Aligned columns.

/// Columns of cells under heads; texts are aligned left, numbers right.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    columns: Vec<GridColumn>,
}

#[derive(Debug)]
struct GridColumn {
    head: String,
    left: bool,
    cells: Vec<String>,
    /// Of the widest cell.
    width: usize,
}

impl Grid {
    pub(crate) fn column(&mut self, head: impl Into<String>, left: bool, cells: Vec<String>) {
        let head = head.into();
        let widths = cells.iter().map(|cell| cell.chars().count());
        self.columns.push(GridColumn {
            width: widths.fold(head.chars().count(), usize::max),
            head,
            left,
            cells,
        });
    }

    /// Writes the columns with two spaces between them and none at the end of a line.
    pub(crate) fn write(&self, out: &mut String) {
        let rows = self.columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
        let mut line = String::new();
        for row in 0..=rows {
            line.clear();
            for (place, column) in self.columns.iter().enumerate() {
                let cell = match row.checked_sub(1) {
                    None => column.head.as_str(),
                    Some(row) => column.cells.get(row).map_or("", String::as_str),
                };
                let rest = column.width.saturating_sub(cell.chars().count());
                pad(&mut line, if place == 0 { 0 } else { 2 });
                if !column.left {
                    pad(&mut line, rest);
                }
                line.push_str(cell);
                if column.left {
                    pad(&mut line, rest);
                }
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
