//! The nonzero levels of a matrix, in the groups in which they are coded.

use crate::code::context::columns::GROUP;

/// Levels without the zeros: little memory where most are zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NonzeroLevels {
    /// Bit j of a group of a row: whether value j is nonzero.
    masks: Vec<u8>,
    /// In order.
    levels: Vec<i32>,
}

impl NonzeroLevels {
    /// None yet, of so many groups and nonzero levels.
    pub(crate) fn with_capacity(groups: usize, levels: usize) -> Self {
        Self {
            masks: Vec::with_capacity(groups),
            levels: Vec::with_capacity(levels),
        }
    }

    /// Appends a group with the nonzero levels `mask`.
    #[inline(always)]
    pub(crate) fn push(&mut self, mask: u32, group: &[i32; GROUP]) {
        self.masks.push(mask as u8);
        let mut left = mask;
        while left != 0 {
            self.levels.push(group[left.trailing_zeros() as usize % GROUP]);
            left &= left - 1;
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.levels.len()
    }

    pub(crate) fn levels(&self) -> &[i32] {
        &self.levels
    }
}

/// A place among levels of rows of `cols`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    cols: usize,
    group: usize,
    /// First column of the group, and values of it that were read.
    col: usize,
    read: usize,
    /// Nonzero levels that were read.
    level: usize,
}

impl Place {
    pub(crate) fn first(cols: usize) -> Self {
        Self {
            cols,
            ..Self::default()
        }
    }

    /// Reads the next `len` levels: hands index and level of each that is nonzero to `take`.
    #[inline(always)]
    pub(crate) fn read(&mut self, from: &NonzeroLevels, len: usize, mut take: impl FnMut(usize, i32)) {
        let mut at = 0;
        while at < len {
            let width = GROUP.min(self.cols - self.col);
            let count = (width - self.read).min(len - at);
            let Some(&mask) = from.masks.get(self.group) else {
                return;
            };
            let mut left = u32::from(mask) >> self.read & ((1 << count) - 1);
            while left != 0 {
                let Some(&level) = from.levels.get(self.level) else {
                    return;
                };
                take(at + left.trailing_zeros() as usize, level);
                self.level += 1;
                left &= left - 1;
            }
            (at, self.read) = (at + count, self.read + count);
            if self.read == width {
                (self.group, self.col, self.read) = (self.group + 1, self.col + width, 0);
                if self.col == self.cols {
                    self.col = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::KeyedRng;

    #[test]
    fn levels_are_read_in_any_portions() {
        let rng = KeyedRng::new(3, 0);
        for cols in [1, 3, 7, 8, 9, 16, 37] {
            let levels: Vec<i32> = (0..cols * 11)
                .map(|at| {
                    if rng.bits(at) % 5 < 2 {
                        rng.bits(at) as i32 >> 8
                    } else {
                        0
                    }
                })
                .collect();
            let mut nonzero = NonzeroLevels::default();
            for group in levels.chunks(cols).flat_map(|row| row.chunks(GROUP)) {
                let mut buffer = [0; GROUP];
                buffer[..group.len()].copy_from_slice(group);
                let mask = (0..GROUP).filter(|&at| buffer[at] != 0).map(|at| 1 << at).sum();
                nonzero.push(mask, &buffer);
            }
            assert_eq!(nonzero.count(), levels.iter().filter(|level| **level != 0).count());
            for portion in [1, 2, 7, 8, 50, 1000] {
                let (mut place, mut read) = (Place::first(cols), Vec::new());
                for part in levels.chunks(portion) {
                    let mut out = vec![0; part.len()];
                    place.read(&nonzero, part.len(), |at, level| out[at] = level);
                    read.extend(out);
                }
                assert_eq!(read, levels, "{cols} by {portion}");
            }
        }
    }
}
