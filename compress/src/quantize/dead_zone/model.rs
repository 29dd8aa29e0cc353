//! Rate-distortion model: estimates the bits and the squared error of a step from a histogram of the values, without
//! encoding.
//!
//! A bin is selected by the sign, the exponent and the highest mantissa bits of a float: 64 bins per octave, down to
//! 2^-48 of the largest magnitude. One word per bin holds the count and the exact sum of the remaining mantissa bits,
//! so one addition per value gives counts and sums of magnitudes. Sums of squares assume that a bin is filled uniformly
//! about its mean.

use crate::quantize::numbers::largest;

/// Mantissa bits below those that choose the bin.
const LOW: u32 = 17;
const PER_OCTAVE: u32 = 1 << (23 - LOW);
/// Bins per sign. The last bin takes all smaller magnitudes.
const BINS: usize = 48 * PER_OCTAVE as usize;
const LANES: usize = 4;
/// Bits of a word for the sum; the bits above hold a count up to [`BLOCK`].
const SUM_BITS: u32 = 40;
/// Values after which the words are added to the totals, before a sum or count can overflow.
const BLOCK: usize = 1 << 22;
/// Stochastic levels below this are counted one by one.
const LEVELS: f64 = 4096.0;
/// A bin that covers more levels than this is treated as a whole.
const MANY: f64 = 16.0;
/// Levels above this are not exact integers; a bin then covers more than [`MANY`] of them.
const EXACT: f64 = (1u64 << 52) as f64;

/// Histogram of values by sign and magnitude.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    len: f64,
    /// Values that are zero, or smaller than every bin.
    zeros: f64,
    /// Nonempty bins by ascending magnitude.
    bins: Vec<Bin>,
    /// `below[i]`: the zeros and the first `i` bins as one class, which a coarse step makes them.
    below: Vec<Class>,
}

#[derive(Debug, Clone, Copy)]
struct Bin {
    low: f64,
    high: f64,
    plus: f64,
    minus: f64,
    /// Mean magnitude.
    mean: f64,
}

impl Histogram {
    /// Counts `values`, which are finite.
    pub(crate) fn new(values: &[f32]) -> Self {
        let top = bin(largest(values));
        let mut words = vec![[0u64; LANES]; 2 * BINS];
        let mut totals = vec![[0u64; 2]; 2 * BINS];
        for block in values.chunks(BLOCK) {
            count(block, top, &mut words);
            for ([count, sum], words) in totals.iter_mut().zip(&mut words) {
                for word in words {
                    *count += *word >> SUM_BITS;
                    *sum += *word & ((1 << SUM_BITS) - 1);
                    *word = 0;
                }
            }
        }
        let depths = (0..(BINS - 1).min(top as usize + 1)).rev();
        let bins: Vec<Bin> = depths
            .filter_map(|depth| Bin::new(top - depth as u32, totals[depth], totals[BINS + depth]))
            .collect();
        let filled: f64 = bins.iter().map(|bin| bin.plus + bin.minus).sum();
        let zeros = values.len() as f64 - filled;
        let mut class = Class {
            plus: zeros,
            ..Class::default()
        };
        let mut below = vec![class];
        for bin in &bins {
            class.add(*bin);
            below.push(class);
        }
        Self {
            len: values.len() as f64,
            zeros,
            bins,
            below,
        }
    }

    /// Upper bound of the largest magnitude, at most one bin too large; 0 if all values are zero.
    pub(crate) fn largest(&self) -> f64 {
        self.bins.last().map_or(0.0, |bin| bin.high)
    }

    /// The number of magnitudes that reach `threshold`, and the sum of the squares of the others.
    pub(crate) fn reaching(&self, threshold: f64) -> (f64, f64) {
        let (mut count, mut below) = (0.0, 0.0);
        for bin in &self.bins {
            let edge = threshold.clamp(bin.low, bin.high);
            let under = bin.between(bin.low, edge);
            let square = under.mean * under.mean + (under.high - under.low).powi(2) / 12.0;
            let lower = under.plus + under.minus;
            count += bin.plus + bin.minus - lower;
            below += lower * square;
        }
        (count, below)
    }

    /// Order-0 entropy in bits of the levels after nearest rounding with `step` and threshold `theta`, and the squared
    /// error. One pass over the bins.
    pub(crate) fn estimate(&self, step: f64, theta: f64) -> (f64, f64) {
        let place = |magnitude: f64| magnitude / step + 1.0 - theta;
        let zeros = self.bins.partition_point(|bin| place(bin.high) <= 1.0);
        let mut sums = Sums {
            len: self.len,
            step,
            class: self.below[zeros],
            bits: 0.0,
            error: 0.0,
        };
        for bin in &self.bins[zeros..] {
            let (low, high) = (place(bin.low), place(bin.high));
            let first = truncated(low);
            let last = (truncated(high) - f64::from(u8::from(truncated(high) == high))).max(first);
            if last - first > MANY || high > EXACT {
                sums.spread(bin, theta);
                continue;
            }
            let mut low = bin.low;
            let mut number = first;
            while number < last {
                let edge = (number + theta) * step;
                sums.add(number, bin.between(low, edge));
                low = edge;
                number += 1.0;
            }
            let part = if last > first { bin.between(low, bin.high) } else { *bin };
            sums.add(last, part);
        }
        sums.close();
        (sums.bits, sums.error)
    }

    /// The same for stochastic rounding; the error is the expectation.
    pub(crate) fn estimate_stochastic(&self, step: f64) -> (f64, f64) {
        let (mut plus, mut minus) = (vec![self.zeros], vec![0.0]);
        let (mut bits, mut error) = (0.0, 0.0);
        for bin in &self.bins {
            let place = bin.mean / step;
            let (level, above) = (place.floor(), place.fract());
            error += (bin.plus + bin.minus) * step * step * above * (1.0 - above);
            if level >= LEVELS {
                let classes = ((bin.high - bin.low) / step).max(1.0);
                bits += classes * (cost(bin.plus / classes, self.len) + cost(bin.minus / classes, self.len));
                continue;
            }
            let at = level as usize;
            let room = plus.len().max(at + 2);
            plus.resize(room, 0.0);
            minus.resize(room, 0.0);
            for (counts, count) in [(&mut plus, bin.plus), (&mut minus, bin.minus)] {
                counts[at] += count * (1.0 - above);
                counts[at + 1] += count * above;
            }
        }
        let zeros = plus[0] + minus[0];
        let others = plus[1..].iter().chain(&minus[1..]);
        bits += cost(zeros, self.len) + others.map(|&count| cost(count, self.len)).sum::<f64>();
        (bits, error)
    }

    /// Sum of magnitudes.
    pub(crate) fn sum(&self) -> f64 {
        self.bins.iter().map(|bin| (bin.plus + bin.minus) * bin.mean).sum()
    }
}

/// The integer below a number from 0 to [`EXACT`]. `f64::floor` is a call where the processor may lack the instruction.
#[inline(always)]
fn truncated(number: f64) -> f64 {
    number as i64 as f64
}

/// Absolute bin number of a magnitude.
fn bin(magnitude: f32) -> u32 {
    magnitude.to_bits() >> LOW
}

#[inline(never)]
fn count(values: &[f32], top: u32, words: &mut [[u64; LANES]]) {
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            let (index, word) = place(group[lane], top);
            words[index][lane] += word;
        }
    }
    for &value in rest {
        let (index, word) = place(value, top);
        words[index][0] += word;
    }
}

/// Index of the word of a value, and the summand.
#[inline(always)]
fn place(value: f32, top: u32) -> (usize, u64) {
    let bits = value.to_bits();
    let depth = (top - (bits >> LOW & 0x3fff)).min(BINS as u32 - 1);
    let index = depth as usize + (bits >> 31) as usize * BINS;
    (index, 1 << SUM_BITS | u64::from(bits & ((1 << LOW) - 1)))
}

impl Bin {
    fn new(bin: u32, plus: [u64; 2], minus: [u64; 2]) -> Option<Self> {
        let count = plus[0] + minus[0];
        if count == 0 {
            return None;
        }
        let low = f64::from(f32::from_bits(bin << LOW));
        let unit = f64::from(f32::from_bits(bin << LOW | 1)) - low;
        Some(Self {
            low,
            high: low + unit * f64::from(1 << LOW),
            plus: plus[0] as f64,
            minus: minus[0] as f64,
            mean: low + unit * (plus[1] + minus[1]) as f64 / count as f64,
        })
    }

    /// The part from `low` to `high` of a uniformly filled bin.
    fn between(&self, low: f64, high: f64) -> Self {
        let share = (high - low) / (self.high - self.low);
        Self {
            low,
            high,
            plus: self.plus * share,
            minus: self.minus * share,
            mean: (low + high) / 2.0,
        }
    }
}

/// Sums over the closed classes, and the open class.
#[derive(Debug)]
struct Sums {
    len: f64,
    step: f64,
    class: Class,
    bits: f64,
    error: f64,
}

/// The values of one level and of its negative.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    number: f64,
    plus: f64,
    minus: f64,
    /// Sums of the magnitudes and of their squares.
    first: f64,
    second: f64,
}

impl Class {
    #[inline(always)]
    fn add(&mut self, part: Bin) {
        let count = part.plus + part.minus;
        self.plus += part.plus;
        self.minus += part.minus;
        self.first += count * part.mean;
        self.second += count * (part.mean * part.mean + (part.high - part.low).powi(2) / 12.0);
    }
}

impl Sums {
    fn add(&mut self, number: f64, part: Bin) {
        if number != self.class.number {
            self.close();
            self.class.number = number;
        }
        self.class.add(part);
    }

    fn close(&mut self) {
        let class = std::mem::take(&mut self.class);
        let count = class.plus + class.minus;
        if class.number == 0.0 {
            self.bits += cost(count, self.len);
            self.error += class.second;
            return;
        }
        self.bits += cost(class.plus, self.len) + cost(class.minus, self.len);
        let level = if class.number == 1.0 {
            class.first / count.max(f64::MIN_POSITIVE)
        } else {
            class.number * self.step
        };
        self.error += (class.second - level * (2.0 * class.first - level * count)).max(0.0);
    }

    /// Adds a bin that covers many levels, assuming that its values are spread evenly over them.
    fn spread(&mut self, bin: &Bin, theta: f64) {
        self.close();
        let classes = (bin.high - bin.low) / self.step;
        // Also with fewer values than levels: no coder has a symbol for each level, so a finer level takes more bits.
        for count in [bin.plus, bin.minus] {
            self.bits += classes * cost(count / classes, self.len);
        }
        let error = (theta.powi(3) + (1.0 - theta).powi(3)) / 3.0 * self.step.powi(2);
        self.error += (bin.plus + bin.minus) * error;
    }
}

/// Ideal code length in bits of `count` equal symbols among `len`.
fn cost(count: f64, len: f64) -> f64 {
    if count > 0.0 { count * (len / count).log2() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::method::Code;
    use crate::layout::Shape;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::dead_zone::DeadZone;
    use crate::quantize::laws::{gaussian, heavy, round_trip, squared_error};
    use crate::quantize::numbers::root_mean_square;
    use crate::rng::KeyedRng;

    #[test]
    fn estimates_are_those_of_the_real_thing() {
        let positive: Vec<f32> = heavy(60_000, 2).iter().map(|value| value.abs()).collect();
        let tiny: Vec<f32> = gaussian(60_000, 3).iter().map(|value| value * 1e-36).collect();
        for (name, values) in [
            ("heavy", heavy(60_000, 1)),
            ("gaussian", gaussian(60_000, 1)),
            ("positive", positive),
            ("tiny", tiny),
        ] {
            let (histogram, rms) = (Histogram::new(&values), root_mean_square(&values));
            for relative in [0.02, 0.1, 0.5, 1.0, 2.0, 3.0] {
                for theta in [0.5, 0.66, 1.0] {
                    let step = (relative * rms) as f32;
                    let spec = DeadZone::nearest(1.0, theta).unwrap().with_step(step);
                    let shape = Shape::row(values.len());
                    let size = spec.encode_planes(&values, shape, Code::Pack, KeyedRng::new(0, 0), &mut Vec::new());
                    let out = round_trip(QuantizeSpec::DeadZone(spec), &values, Code::Pack, 1);
                    let (bits, error) = histogram.estimate(f64::from(step), theta);
                    let (real_bits, real_error) = ((size.bound - 8.0) * 8.0, squared_error(&values, &out));
                    let what = format!("{name} {relative} {theta}: {bits} {real_bits}, {error:e} {real_error:e}");
                    assert!((bits - real_bits).abs() <= 0.015 * real_bits + 100.0, "{what}");
                    assert!((error - real_error).abs() <= 0.015 * real_error, "{what}");
                }
            }
        }
    }

    #[test]
    fn a_larger_step_costs_less() {
        let histogram = Histogram::new(&heavy(30_000, 4));
        let bits: Vec<f64> = (0..200)
            .map(|i| histogram.estimate(1e-5 * 1.06f64.powi(i), 0.66).0)
            .collect();
        assert!(bits.windows(2).all(|pair| pair[1] <= pair[0] * 1.002 + 1.0));
        assert!(bits[199] < bits[0] / 100.0);
    }

    #[test]
    fn few_and_strange_values() {
        assert_eq!(Histogram::new(&[]).estimate(1.0, 0.66), (0.0, 0.0));
        let (bits, error) = Histogram::new(&[0.0, -0.0]).estimate(1.0, 0.66);
        assert!(bits == 0.0 && error < 1e-70);
        let (bits, error) = Histogram::new(&[2.0; 64]).estimate(1.0, 0.5);
        assert!(bits < 1e-9 && error < 64.0 * 4.0 * 1e-4, "{bits} {error}");
        for scale in [f32::MAX, 1.0, 1e-40, 1e-45] {
            let (bits, error) = Histogram::new(&[scale, -scale, scale / 2.0, 0.0]).estimate(f64::from(scale), 0.66);
            assert!(bits.is_finite() && error.is_finite() && bits >= 0.0 && error >= 0.0);
        }
    }
}
