//! Encoder: values to levels.

use std::sync::Arc;

use crate::code::context::levels::encode_scaled;
use crate::code::context::levels::nonzero::Place;
use crate::code::context::levels::scaled::ScaledValues;
use crate::code::context::levels::tradeoff::{Tradeoff, encode_lowered};
use crate::code::levels::{encode_levels, entropy, write_stream};
use crate::code::method::Code;
use crate::finite::largest;
use crate::layout::Shape;
use crate::quantize::dead_zone::decode::values;
use crate::quantize::dead_zone::gather::{BLOCK, LANES, gather};
use crate::quantize::dead_zone::known::KnownLevels;
use crate::quantize::dead_zone::{DeadZone, Step, WORTH};
use crate::quantize::method::{KnownPlane, Size};
use crate::quantize::numbers::root_mean_square;
use crate::rng::KeyedRng;
use crate::simd::vectorized;
use crate::wire::Writer;

// One value in as many may be nonzero, so that the known levels take little memory.
const FEW_NONZERO: usize = 4;
// Bytes before the stream: 4 each for step and mean, and about two for the length of the stream.
const HEAD: usize = 10;
// Largest level: neither its zig-zag number nor the conversion from a float overflows.
const HIGHEST: f64 = (1 << 30) as f64;

/// Levels that were chosen, as a decoder reads them.
#[derive(Debug)]
pub(crate) enum Levels {
    All { step: f32, mean: f32, levels: Vec<i32> },
    Nonzero(KnownLevels),
}

impl Levels {
    /// The `len` values that a decoder gets.
    pub(crate) fn values(&self, len: usize) -> Vec<f32> {
        let mut out = vec![0.0; len];
        match self {
            Self::All { step, mean, levels } => values(levels, *step, *mean, &mut out),
            Self::Nonzero(known) => known.read(&mut Place::first(known.cols), &mut out),
        }
        out
    }

    /// What the plane of `len` values decodes to, if most are zero.
    pub(crate) fn known(self, len: usize) -> Option<Arc<dyn KnownPlane>> {
        match self {
            Self::Nonzero(known) if known.levels.count() <= len / FEW_NONZERO => Some(Arc::new(known)),
            _ => None,
        }
    }
}

impl DeadZone {
    /// Appends the planes of `values`, which are finite.
    pub(crate) fn encode_planes(
        self,
        values: &[f32],
        shape: Shape,
        code: Code,
        rng: KeyedRng,
        out: &mut Vec<u8>,
    ) -> (Size, Levels) {
        match self.threshold {
            Some(threshold) if code == Code::Context => self.encode_nonzero(values, shape, threshold as f32, out),
            _ => self.encode_all(values, shape, code, rng, out),
        }
    }

    /// As [`DeadZone::encode_planes`], for any coder.
    fn encode_all(self, values: &[f32], shape: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> (Size, Levels) {
        let mut levels = vec![0; values.len()];
        let mut step = 1.0;
        let mut mean = 1.0;
        if let Some(asked) = self.absolute_step(values) {
            (step, mean) = (asked, asked);
            let limit = limit(step);
            match self.threshold {
                Some(threshold) => mean = step * nearest(values, step, threshold as f32, limit, &mut levels),
                None => stochastic(values, step, limit, rng, &mut levels),
            }
        }
        mean = mean.min(f32::MAX);
        Writer::new(out).f32s(&[step, mean]);
        let size = Size::new(
            plain_bytes(values.len(), &levels),
            8.0 + encode_levels(&levels, shape, code, out),
        );
        (size, Levels::All { step, mean, levels })
    }

    /// As [`DeadZone::encode_planes`], for nearest rounding and the context coder.
    fn encode_nonzero(self, values: &[f32], shape: Shape, threshold: f32, out: &mut Vec<u8>) -> (Size, Levels) {
        let (step, scaled, one) = match self.absolute_step(values) {
            Some(step) => {
                let (scaled, one) = gather(values, shape, step, threshold, limit(step));
                (step, scaled, one)
            }
            None => (1.0, ScaledValues::zeros(shape), 1.0),
        };
        let mut mean = step * one;
        let mut saved = 0.0;
        let mut stream = Vec::new();
        let levels = if self.is_optimized {
            let tradeoff = Tradeoff {
                one: (mean / step).min(2.0),
                lambda: WORTH as f32,
                aim: self.after(HEAD).aim,
            };
            let lowered = encode_lowered(&scaled, shape, tradeoff, &mut stream);
            (mean, saved) = (step * lowered.one.clamp(0.5, 2.0), lowered.saved);
            lowered.levels
        } else {
            encode_scaled(&scaled, shape, &mut stream)
        };
        mean = mean.min(f32::MAX);
        let mut writer = Writer::new(out);
        writer.f32s(&[step, mean]);
        write_stream(&stream, &mut writer);
        let size = Size {
            plain: plain_bytes(values.len(), levels.levels()),
            bound: 8.0 + entropy(levels.levels(), values.len()),
            saved,
        };
        let known = KnownLevels {
            step,
            mean,
            cols: shape.cols,
            levels,
        };
        (size, Levels::Nonzero(known))
    }

    /// The step for `values`; the largest float if there is none.
    pub(crate) fn step_for(self, values: &[f32]) -> f32 {
        self.absolute_step(values).unwrap_or(f32::MAX)
    }

    /// Whether an absolute step certainly quantizes `values` to zeros. A relative step never does.
    pub(crate) fn quantizes_to_zero(self, values: &[f32]) -> bool {
        match (self.step, self.threshold) {
            (Step::Absolute(step), Some(threshold)) => f64::from(largest(values)) < 0.999 * threshold * f64::from(step),
            _ => false,
        }
    }

    /// The step for `values` if it is a positive normal float.
    fn absolute_step(self, values: &[f32]) -> Option<f32> {
        let step = match (self.step, self.threshold) {
            (Step::Absolute(step), _) => step,
            (Step::Relative(step), None) => (step * root_mean_square(values)) as f32,
            (Step::Relative(step), Some(threshold)) => {
                // Slightly below the widest step that keeps the largest value nonzero.
                let widest = f64::from(largest(values)) / threshold * (1.0 - 1e-6);
                (step * root_mean_square(values)).min(widest) as f32
            }
        };
        (step.is_normal() && step > 0.0).then_some(step)
    }
}

/// Largest level whose value is finite.
fn limit(step: f32) -> f32 {
    (f64::from(f32::MAX) / f64::from(step)).floor().min(HIGHEST) as f32
}

/// Fills `levels`; returns the mean magnitude of the values at level one, in steps. Range: 0.5 to 2.
pub(crate) fn nearest(values: &[f32], step: f32, threshold: f32, limit: f32, levels: &mut [i32]) -> f32 {
    let mut sum = 0.0;
    let mut count = 0u64;
    let mut ones = [0.0; BLOCK];
    for (values, levels) in values.chunks(BLOCK).zip(levels.chunks_mut(BLOCK)) {
        let ones = &mut ones[..values.len()];
        let (more, ones) = vectorized(
            #[inline(always)]
            || {
                nearest_block(values, step, 1.0 - threshold, limit, levels, ones);
                (sum_lanes(ones), count_positive(ones))
            },
        );
        (sum, count) = (sum + more, count + ones);
    }
    if count == 0 {
        return 1.0;
    }
    ((sum / count as f64) as f32).clamp(0.5, 2.0)
}

/// Fills `levels`, and `ones` with the magnitudes at level one, in steps, and zeros elsewhere.
#[inline(always)]
fn nearest_block(values: &[f32], step: f32, offset: f32, limit: f32, levels: &mut [i32], ones: &mut [f32]) {
    for ((level, one), &value) in levels.iter_mut().zip(ones).zip(values) {
        let (ratio, magnitude) = magnitude(value, step, offset, limit);
        *one = if magnitude == 1 { ratio } else { 0.0 };
        *level = signed(magnitude, value);
    }
}

/// Magnitude of a value in steps, and magnitude of its level.
#[inline(always)]
fn magnitude(value: f32, step: f32, offset: f32, limit: f32) -> (f32, i32) {
    let ratio = value.abs() / step;
    (ratio, (ratio + offset).min(limit) as i32)
}

#[inline(always)]
fn sum_lanes(values: &[f32]) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        sums.iter_mut().zip(group).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().chain(rest).map(|&value| f64::from(value)).sum()
}

#[inline(always)]
fn count_positive(values: &[f32]) -> u64 {
    u64::from(
        values
            .iter()
            .map(|value| u32::from(value.to_bits() != 0))
            .fold(0, u32::wrapping_add),
    )
}

#[inline(always)]
fn signed(level: i32, value: f32) -> i32 {
    let minus = value.to_bits() as i32 >> 31;
    (level ^ minus).wrapping_sub(minus)
}

fn stochastic(values: &[f32], step: f32, limit: f32, rng: KeyedRng, levels: &mut [i32]) {
    vectorized(
        #[inline(always)]
        || {
            for (at, (level, &value)) in levels.iter_mut().zip(values).enumerate() {
                let ratio = (value.abs() / step).min(limit);
                let below = ratio as i32;
                let up = rng.unit(at) < ratio - below as f32;
                *level = signed(below.wrapping_add(i32::from(up)), value);
            }
        },
    );
}

/// Bytes of step, mean and `len` levels, of which these are not zero, without entropy coding.
fn plain_bytes(len: usize, levels: &[i32]) -> u64 {
    8 + (len as u64 * width(levels)).div_ceil(8)
}

/// Bit width of the narrowest signed integer that holds every level; 0 if all levels are zero.
fn width(levels: &[i32]) -> u64 {
    let any = levels.iter().fold(0, |any, level| any | level.unsigned_abs());
    u64::from(33 - any.leading_zeros()) * u64::from(any > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::laws::heavy;

    #[test]
    fn the_kernel_agrees_with_the_formula() {
        let values = heavy(10_007, 1);
        for (step, threshold) in [(1e-4f32, 0.5f32), (1e-3, 0.66), (4e-3, 1.0)] {
            let mut levels = vec![0; values.len()];
            let mean = nearest(&values, step, threshold, 1e9, &mut levels);
            let reference = |value: f32| {
                let level = (value.abs() / step + (1.0 - threshold)).floor() as i32;
                if value < 0.0 { -level } else { level }
            };
            assert!(
                values
                    .iter()
                    .zip(&levels)
                    .all(|(&value, &level)| reference(value) == level)
            );
            let ones = values.iter().zip(&levels).filter(|&(_, level)| level.abs() == 1);
            let (sum, count) = ones.fold((0.0, 0.0), |(sum, count), (value, _)| {
                (sum + f64::from(value.abs()), count + 1.0)
            });
            assert!((sum / count / f64::from(step) - f64::from(mean)).abs() < 1e-5);
        }
    }
}
