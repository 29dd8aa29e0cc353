//! A matrix of levels, mostly zeros: significance flags, then sign and magnitude of each nonzero level.

pub(crate) mod nonzero;
pub(crate) mod rate;
pub(crate) mod scaled;
pub(crate) mod tradeoff;

use crate::code::context::chance::Chance;
use crate::code::context::coder::{Binary, Decoder, Encoder};
use crate::code::context::columns::GROUP;
use crate::code::context::flags::Flags;
use crate::code::context::levels::nonzero::NonzeroLevels;
use crate::code::context::levels::scaled::{Groups, ScaledValues};
use crate::code::context::signs::Signs;
use crate::layout::Shape;

// Magnitudes up to this one are coded in unary; larger ones escape to an exponential Golomb code.
const UNARY: usize = 15;
// Bits after the leading one of the largest escape value: levels are below 2^31.
const LONGEST: usize = 30;
// Contexts by expected nonzero values at a place: octaves from 2^-6.
const PLACES: usize = 8;

/// Appends `levels`. Shapes: `levels: [shape.len()]`, row-major. Range: any level except
/// `i32::MIN`.
#[inline(never)]
pub(crate) fn encode_levels(levels: &[i32], shape: Shape, out: &mut Vec<u8>) {
    let mut model = Model::new(shape);
    let mut coder = Encoder::new(out);
    for row in levels.chunks(shape.cols.max(1)) {
        for group in row.chunks(GROUP) {
            let mut buffer = [0; GROUP];
            buffer[..group.len()].copy_from_slice(group);
            let any = buffer.iter().fold(0, |any, level| any | level);
            let mask = if any == 0 { 0 } else { mask(&buffer) };
            model.code(&mut coder, mask, &buffer, |_, _| {});
        }
    }
    coder.finish();
}

/// Appends the levels of `values`; returns them. Shapes: one group for each of `shape`.
#[inline(never)]
pub(crate) fn encode_scaled(values: &ScaledValues, shape: Shape, out: &mut Vec<u8>) -> NonzeroLevels {
    let mut nonzero = NonzeroLevels::with_capacity(values.masks.len(), values.ratios.len());
    let mut model = Model::new(shape);
    let mut coder = Encoder::new(out);
    let mut groups = Groups::new(values);
    let mut levels = [0; GROUP];
    for &mask in &values.masks {
        let mask = u32::from(mask);
        groups.fill(mask, &mut levels, &mut [0.0; GROUP]);
        nonzero.push(mask, &levels);
        model.code(&mut coder, mask, &levels, |_, _| {});
    }
    coder.finish();
    nonzero
}

fn mask(levels: &[i32; GROUP]) -> u32 {
    levels
        .iter()
        .enumerate()
        .fold(0, |mask, (at, &level)| mask | u32::from(level != 0) << at)
}

/// Decodes levels in order. Past the end it returns arbitrary levels, and [`LevelsDecoder::finish`] returns `false`.
#[derive(Debug)]
pub(crate) struct LevelsDecoder<'a> {
    coder: Decoder<'a>,
    model: Box<Model>,
    /// The nonzero levels of a group; the others are arbitrary.
    group: [i32; GROUP],
    /// Bit j: whether level j of the group is not zero.
    mask: u32,
    /// Levels `at..end` of the group are not returned yet.
    at: usize,
    end: usize,
}

impl<'a> LevelsDecoder<'a> {
    /// Opens `bytes`: `shape.len()` levels.
    pub(crate) fn new(bytes: &'a [u8], shape: Shape) -> Self {
        Self {
            coder: Decoder::new(bytes),
            model: Box::new(Model::new(shape)),
            group: [0; GROUP],
            mask: 0,
            at: 0,
            end: 0,
        }
    }

    /// Reads the next `len` levels: hands index and level of each that is not zero to `take`. All calls together may not ask for
    /// more than `shape.len()` levels.
    #[inline(always)]
    pub(crate) fn read(&mut self, len: usize, mut take: impl FnMut(usize, i32)) {
        let mut coder = self.coder;
        let mut start = self.take_held(len, 0, &mut take);
        while start < len {
            let width = self.model.flags.width();
            if start + width <= len {
                self.model
                    .code(&mut coder, 0, &[0; GROUP], |at, level| take(start + at, level));
                start += width;
            } else {
                self.coder = coder;
                self.hold_group();
                coder = self.coder;
                start += self.take_held(len - start, start, &mut take);
            }
        }
        self.coder = coder;
    }

    /// Decodes a group that does not fit into what is read now.
    #[inline(never)]
    fn hold_group(&mut self) {
        (self.at, self.end) = (0, self.model.flags.width());
        let group = &mut self.group;
        self.mask = self
            .model
            .code(&mut self.coder, 0, &[0; GROUP], |at, level| group[at % GROUP] = level);
    }

    /// Hands over at most `len` levels of the group that is held, as those from index `start`; returns how many.
    #[inline(always)]
    fn take_held(&mut self, len: usize, start: usize, take: &mut impl FnMut(usize, i32)) -> usize {
        let taken = len.min(self.end - self.at);
        let mut left = self.mask >> self.at & ((1 << taken) - 1);
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            take(start + at, self.group[(self.at + at) % GROUP]);
        }
        self.at += taken;
        taken
    }

    /// Whether the stream ends here, every byte was consumed, and no magnitude exceeded `i32::MAX`.
    pub(crate) fn finish(&self) -> bool {
        self.at == self.end && !self.model.too_large && self.coder.ends()
    }
}

#[derive(Debug)]
struct Model {
    flags: Flags,
    signs: Signs,
    more: [[Chance; PLACES]; UNARY],
    any_more: [Chance; UNARY],
    longer: [Chance; LONGEST],
    too_large: bool,
}

impl Model {
    fn new(shape: Shape) -> Self {
        Self {
            flags: Flags::new(shape),
            signs: Signs::new(shape),
            more: [[Chance::NEW; PLACES]; UNARY],
            any_more: [Chance::NEW; UNARY],
            longer: [Chance::NEW; LONGEST],
            too_large: false,
        }
    }

    /// Codes the next group, of which the levels at the bits of `mask` are not zero. Hands place and level of those that an encoder
    /// wrote or a decoder read to `found`; returns their bits.
    #[inline(always)]
    fn code(
        &mut self,
        coder: &mut impl Binary,
        mask: u32,
        levels: &[i32; GROUP],
        mut found: impl FnMut(usize, i32),
    ) -> u32 {
        let mask = self.flags.code(coder, mask);
        let mut left = mask;
        while left != 0 {
            let at = left.trailing_zeros() as usize % GROUP;
            left &= left - 1;
            let level = self.level(coder, at, levels[at]);
            found(at, level);
        }
        if self.flags.end_group(mask.count_ones()) {
            self.signs.end_row();
        }
        mask
    }

    #[inline(always)]
    fn level(&mut self, coder: &mut impl Binary, at: usize, level: i32) -> i32 {
        let col = self.flags.col() + at;
        let negative = self.signs.code(coder, col, level < 0);
        let place = self.place(col);
        let magnitude = self.magnitude(coder, place, level.unsigned_abs());
        self.flags.add(col, magnitude);
        let magnitude = i32::try_from(magnitude).unwrap_or_else(|_| {
            self.too_large = true;
            i32::MAX
        });
        if negative { -magnitude } else { magnitude }
    }

    #[inline(always)]
    fn place(&self, col: usize) -> usize {
        ((self.flags.expected(col) + 48) >> 3).clamp(0, PLACES as i32 - 1) as usize
    }

    #[inline(always)]
    fn magnitude(&mut self, coder: &mut impl Binary, place: usize, magnitude: u32) -> u32 {
        for (below, (more, any)) in self.more.iter_mut().zip(&mut self.any_more).enumerate() {
            let below = below as u32 + 1;
            if !coder.code_in(&mut more[place], any, magnitude > below) {
                return below;
            }
        }
        self.large(coder, magnitude)
    }

    /// Exponential Golomb code of the escape value.
    #[cold]
    fn large(&mut self, coder: &mut impl Binary, magnitude: u32) -> u32 {
        let above = magnitude.wrapping_sub(UNARY as u32);
        let length = above.checked_ilog2().unwrap_or_default() as usize;
        let mut bits = 0;
        while bits < LONGEST && coder.code(&mut self.longer[bits], length > bits) {
            bits += 1;
        }
        let mut value = 1;
        for shift in (0..bits as u32).rev() {
            value = value << 1 | coder.plain(above >> shift & 1, 1);
        }
        UNARY as u32 + value
    }
}

#[cfg(test)]
mod tests;
