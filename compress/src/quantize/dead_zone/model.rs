//! Rate-distortion model: estimates the bits and the squared error of a step from a histogram of the values, without
//! encoding. The time of an estimate grows with the levels that a step has, not with the values.

use crate::math::{coarse_log2, square};
use crate::quantize::dead_zone::bins::{Bin, Bins, Class};

// Stochastic levels below this are counted one by one.
const LEVELS: f64 = 4096.0;
// A bin that covers more levels than this is treated as a whole.
const MANY: f64 = 16.0;

#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    len: f64,
    /// Values that are zero, or smaller than every bin.
    zeros: f64,
    bins: Bins,
    all: Class,
}

impl Histogram {
    /// Counts `values`, which are finite.
    pub(crate) fn new(values: &[f32]) -> Self {
        let bins = Bins::new(values);
        let all = bins.from(0.0).class;
        Self {
            len: values.len() as f64,
            zeros: values.len() as f64 - all.count(),
            bins,
            all,
        }
    }

    /// Upper bound of the largest magnitude, at most one bin too large; 0 if all values are zero.
    pub(crate) fn largest(&self) -> f64 {
        self.bins.bins.last().map_or(0.0, |bin| bin.high)
    }

    /// The number of magnitudes that reach `threshold`, and the sum of the squares of the others.
    pub(crate) fn reaching(&self, threshold: f64) -> (f64, f64) {
        let above = self.bins.from(threshold).class;
        (above.count(), (self.all.second - above.second).max(0.0))
    }

    /// Order-0 entropy in bits of the levels after nearest rounding with `step` and threshold `theta`, and the squared
    /// error.
    pub(crate) fn estimate(&self, step: f64, theta: f64) -> (f64, f64) {
        let bins = &self.bins.bins;
        let spread = &bins[bins.partition_point(|bin| bin.high - bin.low <= MANY * step)..];
        // Magnitudes from here on are counted by bins, those below by levels.
        let end = spread.first().map_or(self.largest(), |bin| bin.low);
        let beyond = self.bins.from(end);
        let mut above = self.bins.from(theta * step);
        let zeros = self.all.count() - above.class.count();
        let mut error = self.bins.between(&self.bins.from(0.0), &above).second.max(0.0);
        // The sum of `count * log2(count)` over all levels.
        let mut known = product(self.zeros + zeros);
        let mut number = 1.0;
        while above.class.count() > beyond.class.count() {
            let edge = (number + theta) * step;
            let next = if edge < end { self.bins.from(edge) } else { beyond };
            let class = self.bins.between(&above, &next);
            let count = class.count();
            if count > 0.0 {
                known += product(class.plus) + product(class.minus);
                let level = if number == 1.0 {
                    class.first / count
                } else {
                    number * step
                };
                error += (class.second - level * (2.0 * class.first - level * count)).max(0.0);
            }
            if edge >= end {
                break;
            }
            (above, number) = (next, number + 1.0);
            if let Some(magnitude) = self.bins.gap(&above) {
                // Levels without values.
                number = number.max((magnitude / step + 1.0 - theta) as u32 as f64);
            }
        }
        for bin in spread {
            known += many(bin, step);
            let mean = (theta * square(theta) + (1.0 - theta) * square(1.0 - theta)) / 3.0 * square(step);
            error += (bin.plus + bin.minus) * mean;
        }
        ((product(self.len) - known).max(0.0), error)
    }

    /// The same for stochastic rounding; the error is the expectation.
    pub(crate) fn estimate_stochastic(&self, step: f64) -> (f64, f64) {
        let mut plus = vec![self.zeros];
        let mut minus = vec![0.0];
        let mut bits = 0.0;
        let mut error = 0.0;
        for bin in &self.bins.bins {
            let place = bin.mean / step;
            let level = place.floor();
            let above = place.fract();
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

    pub(crate) fn sum(&self) -> f64 {
        self.all.first
    }
}

/// The part of a bin in the sum of `count * log2(count)` over all levels, if its values are spread evenly over the many
/// levels that it covers.
fn many(bin: &Bin, step: f64) -> f64 {
    let classes = (bin.high - bin.low) / step;
    // Also with fewer values than levels: no coder has a symbol for each level, so a finer level takes more bits.
    let part = |count: f64| {
        if count > 0.0 {
            count * coarse_log2(count / classes)
        } else {
            0.0
        }
    };
    part(bin.plus) + part(bin.minus)
}

/// `count * log2(count)`; 0 if there are none.
#[inline(always)]
fn product(count: f64) -> f64 {
    // Differences of sums are not exactly zero.
    if count > 1e-6 { count * coarse_log2(count) } else { 0.0 }
}

/// Ideal code length in bits of `count` equal symbols among `len`.
fn cost(count: f64, len: f64) -> f64 {
    if count > 0.0 {
        count * coarse_log2(len / count)
    } else {
        0.0
    }
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
                    let (size, _) =
                        spec.encode_planes(&values, shape, Code::Pack, KeyedRng::new(0, 0), &mut Vec::new());
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
