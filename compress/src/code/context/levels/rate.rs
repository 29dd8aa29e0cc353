//! Keeps a stream of levels near a number of bytes: what a bit is worth rises while the stream runs ahead of its share, and
//! falls while it runs behind. Only an encoder knows; any stream decodes alike.

use crate::math;

// Bits that a nonzero level takes, and each unit of its magnitude, in the same unit: shares of the bits of a stream.
const PLACE: u64 = 4;
const UNIT: u64 = 1;
// Magnitudes above this one count like it: from there on the code is exponential Golomb, and a unit costs little.
const COUNTED: u32 = 15;
// Corrections of a stream.
const CORRECTIONS: u64 = 64;
// Share of the stream whose rate is assumed to be the one that was asked for, until it is known.
const ASSUMED: f64 = 0.25;
// Bound of the factor by which the worth of a bit changes: beyond, slopes become too unequal.
const MOST: f64 = 1.5;
// By how much a stream becomes shorter as a bit becomes worth more, both as logarithms: nearly as much where few values
// are nonzero, and falling with their share. Measured on heavy-tailed values.
const SHORTENS: f64 = 0.9;
const FALLS: f64 = 6.5;

/// Where a stream is to end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Aim {
    pub(crate) bytes: usize,
    /// The factor by which the stream is to become shorter at first.
    pub(crate) shorter: f64,
}

impl Aim {
    /// For a stream of `bytes` of which `expected` are expected.
    pub(crate) fn new(bytes: f64, expected: f64) -> Self {
        Self {
            bytes: bytes as usize,
            shorter: expected / bytes,
        }
    }
}

/// The share of the bits of a stream that a group of levels is expected to take.
#[inline(always)]
pub(crate) fn share(levels: &[i32]) -> u64 {
    u64::from(
        levels
            .iter()
            .map(|level: &i32| {
                let magnitude = level.unsigned_abs();
                PLACE as u32 * u32::from(magnitude > 0) + UNIT as u32 * magnitude.min(COUNTED)
            })
            .sum::<u32>(),
    )
}

/// Varies the worth of a bit while a stream is written.
#[derive(Debug)]
pub(crate) struct RateKeeper {
    /// Bits of the whole stream.
    bits: f64,
    /// Shares of the whole stream, and of what is written.
    shares: u64,
    done: u64,
    /// Shares at which the next correction is due.
    due: u64,
    /// Bits written up to the last correction, and what they would be at the unchanged worth of a bit.
    written: f64,
    unchanged: f64,
    /// How much the stream reacts: its length is about `factor^-reacts` of that with an unchanged worth of a bit.
    reacts: f64,
    /// By how much it was to become shorter at first, and becomes now.
    first: f64,
    shorter: f64,
}

impl RateKeeper {
    /// For a stream of levels with these [`share`]s in total, of which a part of `density` is not zero.
    pub(crate) fn new(aim: Aim, shares: u64, density: f64) -> Self {
        let reacts = SHORTENS * math::exp(-FALLS * density);
        let mut new = Self {
            bits: 8.0 * aim.bytes as f64,
            shares,
            done: 0,
            due: shares / CORRECTIONS,
            written: 0.0,
            unchanged: 0.0,
            reacts,
            first: aim.shorter,
            shorter: 1.0,
        };
        new.become_shorter(aim.shorter);
        new
    }

    fn become_shorter(&mut self, by: f64) {
        let most = math::pow(MOST, self.reacts);
        self.shorter = by.clamp(1.0 / most, most);
    }

    /// The factor of the worth of a bit.
    pub(crate) fn factor(&self) -> f32 {
        math::pow(self.shorter, 1.0 / self.reacts) as f32
    }

    /// Records that the levels of `share` were written, and that the stream has `bytes`. Returns the new factor of the worth of
    /// a bit, if it changes.
    #[inline(always)]
    pub(crate) fn wrote(&mut self, share: u64, bytes: usize) -> Option<f32> {
        self.done += share;
        (self.done >= self.due).then(|| self.correct(bytes))
    }

    #[inline(never)]
    fn correct(&mut self, bytes: usize) -> f32 {
        self.due = self.done + self.shares / CORRECTIONS;
        self.count(bytes);
        let assumed = ASSUMED * self.shares as f64;
        // What was asked for is what is expected at the first change.
        let known = (ASSUMED * self.bits * self.first + self.unchanged) / (assumed + self.done as f64);
        let left = self.shares.saturating_sub(self.done).max(1) as f64;
        let needed = (self.bits - self.written) / left;
        // A stream that has its bytes already leaves none.
        self.become_shorter(if needed > 0.0 { known / needed } else { f64::MAX });
        self.factor()
    }

    fn count(&mut self, bytes: usize) {
        let bits = 8.0 * bytes as f64 - self.written;
        self.written += bits;
        self.unchanged += bits * self.shorter;
    }

    /// Bytes that were saved by the changes, of a stream of `bytes`; negative if they made it longer.
    pub(crate) fn saved(mut self, bytes: usize) -> f64 {
        self.count(bytes);
        (self.unchanged - self.written) / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::Aim;
    use crate::code::context::levels::tradeoff::{Tradeoff, encode_lowered};
    use crate::layout::Shape;
    use crate::quantize::dead_zone::WORTH;
    use crate::quantize::dead_zone::gather::gather;
    use crate::quantize::laws::heavy;
    use crate::quantize::numbers::root_mean_square;

    /// Length of the stream, and the bytes saved.
    fn stream(values: &[f32], relative: f64, shape: Shape, bytes: Option<usize>) -> (f64, f64) {
        let step = (relative * root_mean_square(values)) as f32;
        let (scaled, one) = gather(values, shape, step, 0.66, 1e9);
        let (lambda, mut out) = (WORTH as f32, vec![7; 11]);
        let aim = bytes.map(|bytes| Aim { bytes, shorter: 1.0 });
        let tradeoff = Tradeoff { one, lambda, aim };
        let lowered = encode_lowered(&scaled, shape, tradeoff, &mut out);
        (out.len() as f64 - 11.0, lowered.saved)
    }

    #[test]
    fn a_stream_takes_about_the_bytes_that_were_asked_for() {
        let values = heavy(120 * 500, 5);
        for (rows, relative) in [(1, 2.0), (120, 2.0), (120, 1.0), (2000, 3.0)] {
            let shape = Shape {
                rows,
                cols: values.len() / rows,
            };
            let (free, saved) = stream(&values, relative, shape, None);
            assert_eq!(saved, 0.0);
            for share in [0.96, 0.98, 1.0, 1.02] {
                let asked = share * free;
                let (bytes, saved) = stream(&values, relative, shape, Some(asked as usize));
                let what = format!("{shape:?} {relative}: {bytes} and {saved} of {free}, asked {asked}");
                assert!((bytes / asked - 1.0).abs() < 0.015, "{what}");
                assert!(((bytes + saved) / free - 1.0).abs() < 0.03, "{what}");
            }
        }
    }

    #[test]
    fn bytes_out_of_reach_are_approached() {
        let values = heavy(20_000, 5);
        let shape = Shape { rows: 50, cols: 400 };
        let (free, _) = stream(&values, 2.0, shape, None);
        for (asked, bounds) in [(1, 0.7..0.97), (usize::MAX / 8, 1.03..1.3)] {
            let (bytes, _) = stream(&values, 2.0, shape, Some(asked));
            assert!(bounds.contains(&(bytes / free)), "{bytes} of {free}");
        }
    }
}
