//! Significance flags of a matrix: a flag for each group of eight values of a row, then a flag for each value of a
//! group that has a nonzero value.
//!
//! The context of a flag is the expected number of nonzero values there: the count of the column times the factor of
//! the row, quantized. The estimate only selects the context; the probability of each context is adaptive.

use crate::code::context::chance::Chance;
use crate::code::context::coder::Binary;
use crate::code::context::columns::{Columns, GROUP};
use crate::code::context::row::{Row, Rows, log};
use crate::layout::Shape;

/// Contexts by expected nonzero values of a group: half octaves from 2^-9.
const GROUPS: usize = 28;
/// Contexts by expected nonzero values at a place: half octaves from 2^-10.
const PLACES: usize = 26;
/// Contexts by count relative to the mean of the remaining places of the group: half octaves.
const SHARES: usize = 8;

/// Codes the flags, group by group in row-major order.
#[derive(Debug)]
pub(crate) struct Flags {
    shape: Shape,
    /// First column of the next group.
    col: usize,
    /// Count of the group being coded.
    count: u32,
    columns: Columns,
    row: Row,
    rows: Rows,
    groups: [[Chance; GROUPS]; 3],
    first: [[[Chance; SHARES]; GROUP + 1]; 3],
    later: [[Chance; PLACES]; 2],
}

impl Flags {
    pub(crate) fn new(shape: Shape) -> Self {
        let columns = Columns::new(shape);
        let rows = Rows::default();
        let row = Row::new(&columns, &rows);
        let first = std::array::from_fn(|left: usize| {
            std::array::from_fn(|half| Chance::guess(half as i32 - 4, left.max(2) as u64 - 1))
        });
        Self {
            shape,
            col: 0,
            count: 0,
            columns,
            row,
            rows,
            groups: [std::array::from_fn(|half| Chance::guess(half as i32 - 18, 1)); 3],
            first: [first; 3],
            later: [std::array::from_fn(|half| Chance::guess(half as i32 - 20, 1)); 2],
        }
    }

    /// First column of the next group.
    pub(crate) fn col(&self) -> usize {
        self.col
    }

    /// Values in the next group.
    #[inline(always)]
    pub(crate) fn width(&self) -> usize {
        GROUP.min(self.shape.cols - self.col)
    }

    /// Eight times the binary logarithm of the expected number of nonzero values at a column of this group.
    #[inline(always)]
    pub(crate) fn expected(&self, col: usize) -> i32 {
        log(u64::from(self.columns.count(col))) + self.row.factor
    }

    /// Codes the flags of the next group; bit j is the flag of value j.
    #[inline(always)]
    pub(crate) fn code(&mut self, coder: &mut impl Binary, mask: u32) -> u32 {
        let width = self.width();
        let count = self.columns.group(self.col / GROUP, width);
        self.count = count;
        let expected = log(u64::from(count)) + self.row.factor;
        let context = ((expected + 72) >> 2).clamp(0, GROUPS as i32 - 1) as usize;
        let chance = &mut self.groups[self.row.before.min(2) as usize][context];
        if coder.code(chance, mask != 0) {
            self.places(coder, mask, width, count, expected)
        } else {
            0
        }
    }

    #[inline(never)]
    fn places(&mut self, coder: &mut impl Binary, mask: u32, width: usize, count: u32, expected: i32) -> u32 {
        let crowd = usize::from(expected >= -16) + usize::from(expected >= 0);
        let first = &mut self.first[crowd];
        let (mut at, mut rest) = (0, count);
        // If all other places of a nonzero group are zero, the last place must be nonzero and needs no flag.
        while at + 1 < width {
            let left = width - at;
            let own = self.columns.count(self.col + at);
            let share = log(u64::from(own) * left as u64) - log(u64::from(rest));
            let context = (((share + 2) >> 2) + 4).clamp(0, SHARES as i32 - 1) as usize;
            if coder.code(&mut first[left][context], mask >> at & 1 != 0) {
                break;
            }
            rest -= own;
            at += 1;
        }
        let mut kept = 1 << at;
        for at in at + 1..width {
            let context = ((self.expected(self.col + at) + 80) >> 2).clamp(0, PLACES as i32 - 1) as usize;
            let chance = &mut self.later[(kept >> (at - 1) & 1) as usize][context];
            kept |= u32::from(coder.code(chance, mask >> at & 1 != 0)) << at;
        }
        kept
    }

    /// Counts a nonzero value of the group. Range: `magnitude >= 1`.
    #[inline(always)]
    pub(crate) fn add(&mut self, col: usize, magnitude: u32) {
        self.columns.add(col, magnitude);
    }

    /// Advances to the next group after one with `kept` nonzero values; returns whether a row ended.
    #[inline(always)]
    pub(crate) fn end_group(&mut self, kept: u32) -> bool {
        self.row.end_group(self.count, kept);
        self.col += self.width();
        let row_ends = self.col == self.shape.cols;
        if row_ends {
            self.col = 0;
            self.columns.end_row();
            self.rows.end_row(&self.row);
            self.row = Row::new(&self.columns, &self.rows);
        }
        row_ends
    }
}
