//! The values of a matrix that have a nonzero level, gathered once before they are coded: most groups have none.

use crate::code::context::columns::GROUP;
use crate::layout::Shape;

/// Values in steps, without those whose level is zero.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScaledValues {
    /// Bit j of a group of a row: whether value j has a nonzero level.
    pub(crate) masks: Vec<u8>,
    /// In order, with their signs.
    pub(crate) ratios: Vec<f32>,
    /// What is added to the magnitude of a ratio before it is cut to a level.
    pub(crate) offset: f32,
    pub(crate) limit: f32,
}

impl ScaledValues {
    pub(crate) fn zeros(shape: Shape) -> Self {
        Self {
            masks: vec![0; shape.rows * shape.cols.div_ceil(GROUP)],
            ..Self::default()
        }
    }

    #[inline(always)]
    pub(crate) fn level(&self, ratio: f32) -> i32 {
        level(ratio, self.offset, self.limit)
    }

    pub(crate) fn levels(&self) -> impl Iterator<Item = i32> {
        self.ratios.iter().map(|&ratio| self.level(ratio))
    }
}

#[inline(always)]
pub(crate) fn level(ratio: f32, offset: f32, limit: f32) -> i32 {
    let magnitude = (ratio.abs() + offset).min(limit) as i32;
    let minus = ratio.to_bits() as i32 >> 31;
    (magnitude ^ minus).wrapping_sub(minus)
}

#[derive(Debug)]
pub(crate) struct Groups<'a> {
    values: &'a ScaledValues,
    ratios: &'a [f32],
}

impl<'a> Groups<'a> {
    pub(crate) fn new(values: &'a ScaledValues) -> Self {
        Self {
            values,
            ratios: &values.ratios,
        }
    }

    /// Fills the places of a group with these bits, with levels and ratios; the other places keep what they have.
    #[inline(always)]
    pub(crate) fn fill(&mut self, mask: u32, levels: &mut [i32; GROUP], ratios: &mut [f32; GROUP]) {
        let (now, rest) = self
            .ratios
            .split_at((mask.count_ones() as usize).min(self.ratios.len()));
        self.ratios = rest;
        let mut left = mask;
        for &ratio in now {
            let at = left.trailing_zeros() as usize % GROUP;
            left &= left.wrapping_sub(1);
            (levels[at], ratios[at]) = (self.values.level(ratio), ratio);
        }
    }
}
