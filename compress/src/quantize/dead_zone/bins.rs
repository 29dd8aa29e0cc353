//! Values counted by sign and magnitude, in bins with prefix sums.
//!
//! A bin is selected by the sign, the exponent and the highest mantissa bits of a float: 64 bins per octave, down to
//! 2^-48 of the largest magnitude. One word per bin holds the count and the exact sum of the remaining mantissa bits,
//! so one addition per value gives counts and sums of magnitudes. Sums of squares assume that a bin is filled uniformly
//! about its mean.

use crate::finite::largest;
use crate::math::square;

// Mantissa bits below those that choose the bin: 6 of 23 choose it, 64 bins per octave, each 1 to 1.6 % wide.
const LOW: u32 = 17;
const PER_OCTAVE: u32 = 1 << (23 - LOW);
// Bins per sign. The last bin takes all smaller magnitudes: steps end 24 octaves below the largest one.
const BINS: usize = 48 * PER_OCTAVE as usize;
// Neighbors are counted in different words, so that an addition does not wait for the one before.
const LANES: usize = 4;
// Fewer values are counted in one lane: clearing and adding up the others would take longer.
const FEW: usize = 1 << 14;
// Bits of a word for the sum: 2^22 values of 17 bits have a sum below 2^39. The 24 bits above hold a count up to
// `BLOCK`.
const SUM_BITS: u32 = 40;
// Values after which the words are added to the totals, before a sum or count can overflow.
const BLOCK: usize = 1 << 22;

/// One nonempty bin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bin {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) plus: f64,
    pub(crate) minus: f64,
    /// Mean magnitude.
    pub(crate) mean: f64,
}

/// Values of a range of magnitudes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Class {
    pub(crate) plus: f64,
    pub(crate) minus: f64,
    /// Sums of the magnitudes and of their squares.
    pub(crate) first: f64,
    pub(crate) second: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct Bins {
    pub(crate) bins: Vec<Bin>,
    /// `above[i]`: bins from `i` on, one more than there are bins.
    above: Vec<Class>,
    /// Number of the smallest bin that is counted.
    bottom: u32,
    /// Nonempty bins below each bin from `bottom` on.
    below: Vec<u16>,
}

impl Bins {
    /// Counts `values`, which are finite. Zeros and values smaller than every bin are in none.
    pub(crate) fn new(values: &[f32]) -> Self {
        let top = number(largest(values));
        let bottom = top.saturating_sub(BINS as u32 - 2);
        let mut totals = vec![[0u64; 2]; 2 * BINS];
        if values.len() < FEW {
            add::<1>(values, top, &mut totals);
        } else {
            add::<LANES>(values, top, &mut totals);
        }
        let mut bins = Vec::new();
        let mut below = Vec::new();
        for number in bottom..=top {
            below.push(bins.len() as u16);
            let depth = (top - number) as usize;
            bins.extend(Bin::new(number, totals[depth], totals[BINS + depth]));
        }
        let mut above = vec![Class::default(); bins.len() + 1];
        for at in (0..bins.len()).rev() {
            above[at] = above[at + 1];
            above[at].add(&bins[at]);
        }
        Self {
            bins,
            above,
            bottom,
            below,
        }
    }

    /// The values of at least this magnitude. A bin that it divides counts as uniformly filled.
    #[inline(always)]
    pub(crate) fn from(&self, magnitude: f64) -> Upper {
        let whole = |at: usize| Upper {
            class: self.above[at],
            divided: None,
            next: at,
        };
        let number = number(magnitude as f32);
        let Some(&at) = self.below.get(number.saturating_sub(self.bottom) as usize) else {
            return whole(self.bins.len());
        };
        let at = usize::from(at);
        let Some(bin) = self.bins.get(at).filter(|bin| bin.low < magnitude) else {
            return whole(at);
        };
        let mut class = self.above[at + 1];
        class.add(&bin.between(magnitude, bin.high));
        Upper {
            class,
            divided: Some(at),
            next: at + 1,
        }
    }

    /// The lowest magnitude from one on at which there are values; `None` if a bin is divided there, or if there are none.
    #[inline(always)]
    pub(crate) fn gap(&self, from: &Upper) -> Option<f64> {
        let next = self.bins.get(from.next).filter(|_| from.divided.is_none());
        next.map(|bin| bin.low)
    }

    #[inline(always)]
    pub(crate) fn between(&self, low: &Upper, high: &Upper) -> Class {
        let class = low.class.without(&high.class);
        match high.divided {
            Some(at) if low.divided != high.divided => {
                // The lower part of the bin counts as uniformly filled, too.
                let mut uniform = Class::default();
                let mut actual = Class::default();
                let bin = &self.bins[at];
                uniform.add(&bin.between(bin.low, bin.high));
                actual.add(bin);
                class.without(&actual.without(&uniform))
            }
            _ => class,
        }
    }
}

/// The values of at least some magnitude.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upper {
    pub(crate) class: Class,
    divided: Option<usize>,
    next: usize,
}

impl Bin {
    fn new(number: u32, plus: [u64; 2], minus: [u64; 2]) -> Option<Self> {
        let count = plus[0] + minus[0];
        if count == 0 {
            return None;
        }
        let low = f64::from(f32::from_bits(number << LOW));
        let unit = f64::from(f32::from_bits(number << LOW | 1)) - low;
        Some(Self {
            low,
            high: low + unit * f64::from(1 << LOW),
            plus: plus[0] as f64,
            minus: minus[0] as f64,
            mean: low + unit * (plus[1] + minus[1]) as f64 / count as f64,
        })
    }

    /// The part from `low` to `high` of a uniformly filled bin.
    #[inline(always)]
    fn between(&self, low: f64, high: f64) -> Self {
        let share = ((high - low) / (self.high - self.low)).max(0.0);
        Self {
            low,
            high,
            plus: self.plus * share,
            minus: self.minus * share,
            mean: (low + high) / 2.0,
        }
    }
}

impl Class {
    #[inline(always)]
    pub(crate) fn count(&self) -> f64 {
        self.plus + self.minus
    }

    #[inline(always)]
    fn add(&mut self, part: &Bin) {
        let count = part.plus + part.minus;
        self.plus += part.plus;
        self.minus += part.minus;
        self.first += count * part.mean;
        self.second += count * (part.mean * part.mean + square(part.high - part.low) / 12.0);
    }

    /// These values without `others`, which are some of them.
    #[inline(always)]
    pub(crate) fn without(&self, others: &Self) -> Self {
        Self {
            plus: self.plus - others.plus,
            minus: self.minus - others.minus,
            first: self.first - others.first,
            second: self.second - others.second,
        }
    }
}

/// Absolute bin number of a magnitude.
#[inline(always)]
fn number(magnitude: f32) -> u32 {
    magnitude.to_bits() >> LOW
}

/// Adds counts and sums of mantissas of `values` to `totals`.
fn add<const LANES: usize>(values: &[f32], top: u32, totals: &mut [[u64; 2]]) {
    let mut words = vec![[0u64; LANES]; 2 * BINS];
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
}

#[inline(never)]
fn count<const LANES: usize>(values: &[f32], top: u32, words: &mut [[u64; LANES]]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::laws::heavy;

    #[test]
    fn sums_from_any_magnitude_are_those_of_the_values() {
        for (len, scale) in [(1000, 1.0), (60_000, 1e-30), (60_000, 1e30)] {
            let values: Vec<f32> = heavy(len, 7).iter().map(|value| value * scale).collect();
            let bins = Bins::new(&values);
            let largest = f64::from(largest(&values));
            for octave in 0..20 {
                let magnitude = largest * 0.77 * f64::from(-octave).exp2();
                let reaching = values
                    .iter()
                    .map(|&value| f64::from(value))
                    .filter(|value| value.abs() >= magnitude);
                let (mut plus, mut first, mut second) = (0.0, 0.0, 0.0);
                for value in reaching {
                    (plus, first) = (plus + f64::from(u8::from(value > 0.0)), first + value.abs());
                    second += value * value;
                }
                let class = bins.from(magnitude).class;
                let near = |a: f64, b: f64, one: f64| (a - b).abs() <= 0.01 * b.abs() + 2.0 * one;
                assert!(near(class.plus, plus, 1.0), "{magnitude:e}: {} {plus}", class.plus);
                assert!(
                    near(class.first, first, magnitude),
                    "{magnitude:e}: {} {first}",
                    class.first
                );
                assert!(
                    near(class.second, second, magnitude * magnitude),
                    "{magnitude:e}: {} {second}",
                    class.second
                );
            }
            assert_eq!(bins.from(largest * 1.1).class.count(), 0.0);
            assert_eq!(bins.from(0.0).class.count(), bins.above[0].count());
        }
    }
}
