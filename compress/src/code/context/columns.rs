//! What is known of a matrix's columns: how much each held in the rows so far.

use crate::layout::Shape;

/// Columns coded behind one flag.
pub(super) const GROUP: usize = 8;
/// What each column is taken to have held before the first row: half a value of magnitude one.
pub(super) const PRIOR: u32 = 1;
/// Rows after which all counts are halved.
const WINDOW: u32 = 1024;
/// A probability of one, where they are added up.
pub(super) const ONE: u32 = 20;
/// Values that are not zero among as many in the first row, before any was seen: one in 2^5.
const FIRST: u32 = 5;

/// Counts of each column. One row has none: it could learn nothing from them.
#[derive(Debug)]
pub(super) struct Columns {
    counts: Vec<u16>,
    /// Their sums by group.
    groups: Vec<u32>,
    mass: u64,
    rows: u32,
    kept: u64,
    cols: u64,
}

impl Columns {
    pub(super) fn new(shape: Shape) -> Self {
        let cols = if shape.rows > 1 { shape.cols } else { 0 };
        Self {
            counts: vec![0; cols],
            groups: vec![0; cols.div_ceil(GROUP)],
            mass: 0,
            rows: 0,
            kept: 0,
            cols: shape.cols as u64,
        }
    }

    #[inline(always)]
    pub(super) fn count(&self, col: usize) -> u32 {
        self.counts.get(col).map_or(PRIOR, |&count| u32::from(count) + PRIOR)
    }

    /// The sum of the counts of a group of `width` columns.
    #[inline(always)]
    pub(super) fn group(&self, group: usize, width: usize) -> u32 {
        self.groups.get(group).copied().unwrap_or_default() + PRIOR * width as u32
    }

    /// Counts a value that is not zero, of this magnitude.
    #[inline(always)]
    pub(super) fn add(&mut self, col: usize, magnitude: u32) {
        let more = 2 * magnitude.min(3);
        if let (Some(count), Some(group)) = (self.counts.get_mut(col), self.groups.get_mut(col / GROUP)) {
            *count += more as u16;
            *group += more;
            self.mass += u64::from(more);
            self.kept += 1;
        }
    }

    /// Ends a row.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
        if self.rows < WINDOW {
            return;
        }
        self.rows /= 2;
        self.kept /= 2;
        self.mass = 0;
        for (group, counts) in self.groups.iter_mut().zip(self.counts.chunks_mut(GROUP)) {
            counts.iter_mut().for_each(|count| *count /= 2);
            *group = counts.iter().map(|&count| u32::from(count)).sum();
            self.mass += u64::from(*group);
        }
    }

    /// What turns a count into the expected number of values that are not zero, before [`ONE`] is taken off.
    pub(super) fn scale(&self) -> u64 {
        if self.rows == 0 {
            return 1 << (ONE - FIRST);
        }
        let counted = self.mass + self.cols * u64::from(PRIOR);
        (((self.kept + 1) << ONE) / (u64::from(self.rows) * counted)).max(1)
    }
}
