//! Statistics of the row being coded, and the logarithms that combine them with the column statistics.

use crate::code::context::columns::{Columns, ONE};
use crate::code::context::spread::Spread;

// Nonzero values after which the row statistics are halved: the factor of a row follows its last 32 to 64 nonzero
// values.
const WINDOW: u64 = 64 << ONE;
// Largest prior count of a row: half of `WINDOW`, so that the values of the row can outweigh it.
const MOST: u64 = 32;
// Rows after which the statistics of all rows are halved.
const ROWS: u64 = 1024;

/// Eight times the binary logarithm, linearly interpolated between powers of two; zero counts as one.
#[inline(always)]
pub(crate) fn log(value: u64) -> i32 {
    let exponent = (value | 1).ilog2();
    let mantissa = (value << (63 - exponent)) >> 60 & 7;
    (exponent << 3) as i32 | mantissa as i32
}

/// Ratio of the nonzero values of a row to the number expected from its columns.
#[derive(Debug)]
pub(crate) struct Row {
    scale: u64,
    log_scale: i32,
    expected: u64,
    kept: u64,
    log_kept: i32,
    /// Eight times the binary logarithm of the factor from a column count to an expected number of nonzero values.
    pub(crate) factor: i32,
    /// Nonzero values of the previous group.
    pub(crate) before: u32,
    total: u64,
}

/// How unequal the rows are.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    spread: Spread,
    count: u64,
}

impl Rows {
    pub(crate) fn end_row(&mut self, row: &Row) {
        self.count += 1;
        self.spread.sum += row.total;
        self.spread.steps += row.total;
        self.spread.squares += row.total * row.total;
        if self.count == ROWS {
            self.count /= 2;
            self.spread.sum /= 2;
            self.spread.steps /= 2;
            self.spread.squares /= 2;
        }
    }

    fn prior(&self) -> u64 {
        if self.count == 0 {
            1
        } else {
            self.spread.prior(self.count).clamp(1, MOST)
        }
    }
}

impl Row {
    pub(crate) fn new(columns: &Columns, rows: &Rows) -> Self {
        let prior = rows.prior() << ONE;
        let scale = columns.scale();
        let log_scale = log(scale) - 8 * ONE as i32;
        Self {
            scale,
            log_scale,
            expected: prior,
            kept: prior,
            log_kept: log(prior),
            factor: log_scale,
            before: 0,
            total: 0,
        }
    }

    /// Ends a group with `kept` nonzero values, whose columns have the count `group`.
    #[inline(always)]
    pub(crate) fn end_group(&mut self, group: u32, kept: u32) {
        self.before = kept;
        self.expected += u64::from(group) * self.scale;
        if kept > 0 {
            self.total += u64::from(kept);
            self.kept += u64::from(kept) << ONE;
            if self.kept > WINDOW {
                self.kept /= 2;
                self.expected /= 2;
            }
            self.log_kept = log(self.kept);
        }
        self.factor = self.log_scale + self.log_kept - log(self.expected);
    }
}
