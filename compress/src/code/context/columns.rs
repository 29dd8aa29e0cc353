//! Column statistics of a matrix: how much each column held in the rows so far.

use crate::code::context::spread::Spread;
use crate::layout::Shape;

// Columns that share one group flag.
pub(crate) const GROUP: usize = 8;
// Largest prior count of a column.
const MOST: u64 = 4000;
// Rows after which all counts are halved. A row adds at most 6 to a count, so counts stay far below `u16::MAX`.
const WINDOW: u32 = 1024;
// Fixed-point fraction bits: `1 << ONE` is a probability of one. A number of values has 32 bits, so the product fits a
// u64.
pub(crate) const ONE: u32 = 20;
// Assumed density of nonzero values in the first row, which no counts describe yet: one in 2^5.
const FIRST: u32 = 5;

/// Counts per column. A single row has none, as no later row would use them.
#[derive(Debug)]
pub(crate) struct Columns {
    counts: Vec<u16>,
    /// Sums of the counts by group.
    groups: Vec<u32>,
    spread: Spread,
    /// Prior count of each column. It is larger the more similar the columns are.
    prior: u32,
    rows: u32,
    kept: u64,
    cols: u64,
}

impl Columns {
    pub(crate) fn new(shape: Shape) -> Self {
        let cols = if shape.rows > 1 { shape.cols } else { 0 };
        Self {
            counts: vec![0; cols],
            groups: vec![0; cols.div_ceil(GROUP)],
            spread: Spread::default(),
            prior: 1,
            rows: 0,
            kept: 0,
            cols: shape.cols as u64,
        }
    }

    #[inline(always)]
    pub(crate) fn count(&self, col: usize) -> u32 {
        self.counts.get(col).map_or(0, |&count| u32::from(count)) + self.prior
    }

    /// The sum of the counts of a group of `width` columns.
    #[inline(always)]
    pub(crate) fn group(&self, group: usize, width: usize) -> u32 {
        self.groups.get(group).copied().unwrap_or_default() + self.prior * width as u32
    }

    /// Counts a nonzero value of this magnitude.
    #[inline(always)]
    pub(crate) fn add(&mut self, col: usize, magnitude: u32) {
        let more = 2 * magnitude.min(3);
        if let (Some(count), Some(group)) = (self.counts.get_mut(col), self.groups.get_mut(col / GROUP)) {
            self.spread.sum += u64::from(more);
            self.spread.squares += u64::from(more * (2 * u32::from(*count) + more));
            self.spread.steps += u64::from(more * more);
            *count += more as u16;
            *group += more;
            self.kept += 1;
        }
    }

    pub(crate) fn end_row(&mut self) {
        if self.counts.is_empty() {
            return;
        }
        self.rows += 1;
        if self.rows == WINDOW {
            self.halve();
        }
        self.prior = self.spread.prior(self.cols).clamp(1, MOST) as u32;
    }

    fn halve(&mut self) {
        self.rows /= 2;
        self.kept /= 2;
        (self.spread.sum, self.spread.squares) = (0, 0);
        self.spread.steps /= 4;
        for (group, counts) in self.groups.iter_mut().zip(self.counts.chunks_mut(GROUP)) {
            counts.iter_mut().for_each(|count| *count /= 2);
            *group = counts.iter().map(|&count| u32::from(count)).sum();
            self.spread.sum += u64::from(*group);
            self.spread.squares += counts.iter().map(|&count| u64::from(count).pow(2)).sum::<u64>();
        }
    }

    /// Factor from a count to the expected number of nonzero values, with [`ONE`] fraction bits.
    pub(crate) fn scale(&self) -> u64 {
        if self.rows == 0 {
            return 1 << (ONE - FIRST);
        }
        let counted = self.spread.sum + self.cols * u64::from(self.prior);
        (((self.kept + 1) << ONE) / (u64::from(self.rows) * counted)).max(1)
    }
}
