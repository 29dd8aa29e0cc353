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

// Contexts by expected nonzero values of a group: half octaves from 2^-9.
const GROUPS: usize = 28;
// Contexts by expected nonzero values at a place: half octaves from 2^-10.
const PLACES: usize = 26;
// Contexts by count relative to the mean of the remaining places of the group: half octaves.
const SHARES: usize = 8;

/// Codes the flags, group by group in row-major order.
#[derive(Debug)]
pub(crate) struct Flags {
    shape: Shape,
    col: usize,
    /// Count of the group being coded.
    count: u32,
    columns: Columns,
    row: Row,
    rows: Rows,
    groups: [[Chance; GROUPS]; 3],
    first: [[[Chance; SHARES]; GROUP + 1]; 3],
    later: [[Chance; 2]; PLACES],
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
            later: std::array::from_fn(|half| [Chance::guess(half as i32 - 20, 1); 2]),
        }
    }

    pub(crate) fn col(&self) -> usize {
        self.col
    }

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
        let (count, expected) = self.next();
        self.count = count;
        let chance = &mut self.groups[self.row.before.min(2) as usize][group_context(expected)];
        if coder.code(chance, mask != 0) {
            self.places(coder, mask, width, count, expected)
        } else {
            0
        }
    }

    /// Count of the next group, and eight times the binary logarithm of its expected number of nonzero values.
    #[inline(always)]
    fn next(&self) -> (u32, i32) {
        let count = self.columns.group(self.col / GROUP, self.width());
        (count, log(u64::from(count)) + self.row.factor)
    }

    #[inline(always)]
    fn places(&mut self, coder: &mut impl Binary, mask: u32, width: usize, count: u32, expected: i32) -> u32 {
        let first = &mut self.first[crowd(expected)];
        // Ahead of the decisions, so that these do not wait for them.
        let mut counts = [0; GROUP];
        let mut contexts = [0; GROUP];
        for at in 0..GROUP {
            counts[at] = self.columns.count(self.col + at);
            contexts[at] = place_context(log(u64::from(counts[at])) + self.row.factor);
        }
        let mut at = 0;
        let mut rest = count;
        // If all other places of a nonzero group are zero, the last place must be nonzero and needs no flag.
        while at + 1 < width {
            let left = width - at;
            let own = counts[at];
            if coder.code(&mut first[left][share_context(own, left, rest)], mask >> at & 1 != 0) {
                break;
            }
            rest -= own;
            at += 1;
        }
        let mut kept = 1 << at;
        let mut before = 1;
        for (at, &context) in contexts.iter().enumerate().take(width).skip(at + 1) {
            let chance = &mut self.later[context][before];
            before = usize::from(coder.code(chance, mask >> at & 1 != 0));
            kept |= (before as u32) << at;
        }
        kept
    }

    /// Costs of the flag of the next group.
    #[inline(always)]
    pub(crate) fn group_costs(&self) -> [u32; 2] {
        let (_, expected) = self.next();
        both(self.groups[self.row.before.min(2) as usize][group_context(expected)])
    }

    #[inline(never)]
    pub(crate) fn costs(&self) -> FlagCosts {
        let (count, expected) = self.next();
        let any = self.groups[self.row.before.min(2) as usize][group_context(expected)];
        let mut costs = FlagCosts {
            width: self.width(),
            any: both(any),
            ..FlagCosts::default()
        };
        let first = &self.first[crowd(expected)];
        let mut rest = count;
        for at in 0..costs.width {
            let left = costs.width - at;
            let own = self.columns.count(self.col + at);
            if left > 1 {
                costs.first[at] = both(first[left][share_context(own, left, rest)]);
            }
            rest -= own.min(rest);
            let context = place_context(self.expected(self.col + at));
            costs.later[at] = self.later[context].map(both);
        }
        costs
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

#[inline(always)]
fn group_context(expected: i32) -> usize {
    ((expected + 72) >> 2).clamp(0, GROUPS as i32 - 1) as usize
}

#[inline(always)]
fn crowd(expected: i32) -> usize {
    usize::from(expected >= -16) + usize::from(expected >= 0)
}

#[inline(always)]
fn share_context(own: u32, left: usize, rest: u32) -> usize {
    let share = log(u64::from(own) * left as u64) - log(u64::from(rest));
    (((share + 2) >> 2) + 4).clamp(0, SHARES as i32 - 1) as usize
}

#[inline(always)]
fn place_context(expected: i32) -> usize {
    ((expected + 80) >> 2).clamp(0, PLACES as i32 - 1) as usize
}

/// Costs of both outcomes of the flags of one group (see [`Chance::cost`]).
#[derive(Debug, Default)]
pub(crate) struct FlagCosts {
    width: usize,
    any: [u32; 2],
    /// While no value before is nonzero.
    first: [[u32; 2]; GROUP],
    /// After the first nonzero value, by the flag before.
    later: [[[u32; 2]; 2]; GROUP],
}

#[inline(always)]
fn both(chance: Chance) -> [u32; 2] {
    [chance.cost(false), chance.cost(true)]
}

impl FlagCosts {
    /// Cost of all flags of the group without the value at `at`, of a group whose flags cost `cost`.
    #[inline(always)]
    pub(crate) fn without(&self, mask: u32, cost: u32, at: usize) -> u32 {
        if mask & ((1 << at) - 1) == 0 {
            // Another value becomes the first, or none is left.
            return self.of(mask & !(1 << at));
        }
        let flag = |at: usize| (mask >> at & 1) as usize;
        let own = &self.later[at][flag(at - 1)];
        let mut less = cost - own[1] + own[0];
        if at + 1 < self.width {
            let next = &self.later[at + 1];
            less = less - next[1][flag(at + 1)] + next[0][flag(at + 1)];
        }
        less
    }

    /// Cost of all flags of the group.
    #[inline(always)]
    pub(crate) fn of(&self, mask: u32) -> u32 {
        if mask == 0 {
            return self.any[0];
        }
        let first = mask.trailing_zeros() as usize;
        let mut sum = self.any[1];
        for (at, costs) in self.first[..self.width].iter().enumerate().take(first + 1) {
            sum += costs[usize::from(at == first)];
        }
        for at in first + 1..self.width {
            sum += self.later[at][(mask >> (at - 1) & 1) as usize][(mask >> at & 1) as usize];
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::context::chance::COST;
    use crate::rng::KeyedRng;

    /// Sums the bits of what is coded.
    struct Counter(f64);

    impl Binary for Counter {
        fn split(&mut self, ones: u32, one: bool) -> bool {
            let share = if one { ones } else { 65_536 - ones };
            self.0 += 16.0 - f64::from(share).log2();
            one
        }

        fn plain(&mut self, bits: u32, count: u32) -> u32 {
            self.0 += f64::from(count);
            bits
        }
    }

    #[test]
    fn costs_are_those_of_the_flags_that_are_coded() {
        for shape in [
            Shape { rows: 60, cols: 37 },
            Shape::row(2220),
            Shape { rows: 300, cols: 1 },
        ] {
            let (mut flags, rng) = (Flags::new(shape), KeyedRng::new(4, 0));
            for at in 0..shape.rows * shape.cols.div_ceil(GROUP) {
                // Columns of unequal density.
                let bits = (0..flags.width()).map(|j| u32::from(rng.unit(100 * at + j) < 0.3 / (1 + j) as f32) << j);
                let mask = bits.sum();
                let costs = flags.costs();
                for at in (0..GROUP).filter(|at| mask >> at & 1 != 0) {
                    assert_eq!(costs.without(mask, costs.of(mask), at), costs.of(mask & !(1 << at)));
                }
                assert_eq!(flags.group_costs(), [costs.of(0), costs.any[1]]);
                let cost = f64::from(costs.of(mask)) / f64::from(1 << COST);
                let mut counter = Counter(0.0);
                flags.code(&mut counter, mask);
                assert!(
                    (cost - counter.0).abs() < 0.1 + 0.05 * counter.0,
                    "{cost} for {}",
                    counter.0
                );
                let col = flags.col();
                (0..GROUP)
                    .filter(|j| mask >> j & 1 != 0)
                    .for_each(|j| flags.add(col + j, 1));
                flags.end_group(mask.count_ones());
            }
        }
    }
}
