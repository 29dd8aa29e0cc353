//! Rate-distortion-optimized quantization: while a group of levels is coded, some are lowered by one where that minimizes
//! `error + lambda * bits`, with the bits that the adaptive contexts take there (as video encoders do). Greedy: a choice
//! ignores what it changes for later groups. A decoder reads the result as any other levels.

use crate::code::context::chance::COST;
use crate::code::context::coder::Encoder;
use crate::code::context::columns::GROUP;
use crate::code::context::levels::nonzero::NonzeroLevels;
use crate::code::context::levels::rate::{Aim, RateKeeper, share};
use crate::code::context::levels::scaled::{Groups, ScaledValues};
use crate::code::context::levels::{Model, UNARY};
use crate::layout::Shape;

/// What the choice of a level weighs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tradeoff {
    /// Expected magnitude of a decoded level one, in steps.
    pub(crate) one: f32,
    /// Squared error that a bit is worth, in squared steps.
    pub(crate) lambda: f32,
    /// Where the stream is to end: what a bit is worth then varies.
    pub(crate) aim: Option<Aim>,
}

/// Levels of which some were lowered.
#[derive(Debug)]
pub(crate) struct LoweredLevels {
    /// Mean magnitude of the values at level one, in steps; that of the [`Tradeoff`] if there are none.
    pub(crate) one: f32,
    /// Bytes that were saved by a varied worth of a bit; negative if they were added.
    pub(crate) saved: f64,
    pub(crate) levels: NonzeroLevels,
}

/// A nonzero level of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Candidate {
    at: usize,
    level: i32,
    /// Squared error saved compared with zero, minus the worth of sign and magnitude, in squared steps.
    gain: f32,
    /// Whether it may not become zero.
    is_fixed: bool,
}

/// Lowers some levels of `values`, and appends their stream. The error of a lowered level is at most one step. Shapes: one group
/// for each of `shape`.
#[inline(never)]
pub(crate) fn encode_lowered(
    values: &ScaledValues,
    shape: Shape,
    mut tradeoff: Tradeoff,
    out: &mut Vec<u8>,
) -> LoweredLevels {
    let mut nonzero = NonzeroLevels::with_capacity(values.masks.len(), values.ratios.len());
    let mut model = Model::new(shape);
    let first = out.len();
    let shares = || values.levels().map(|level| share(&[level])).sum();
    let density = values.ratios.len() as f64 / shape.len().max(1) as f64;
    let mut keeper = tradeoff.aim.map(|aim| RateKeeper::new(aim, shares(), density));
    let lambda = tradeoff.lambda;
    tradeoff.lambda *= keeper.as_ref().map_or(1.0, RateKeeper::factor);
    let mut coder = Encoder::new(out);
    let mut sum = 0.0;
    let mut count = 0u64;
    let mut groups = Groups::new(values);
    let mut levels = [0; GROUP];
    let mut ratios = [0.0; GROUP];
    for &mask in &values.masks {
        let mut mask = u32::from(mask);
        if mask == 0 {
            nonzero.push(0, &levels);
            model.code(&mut coder, 0, &levels, |_, _| {});
            continue;
        }
        levels = [0; GROUP];
        groups.fill(mask, &mut levels, &mut ratios);
        let shares = share(&levels);
        mask = model.lower(mask, &mut levels, &ratios, tradeoff);
        let mut left = mask;
        while left != 0 {
            let at = left.trailing_zeros() as usize % GROUP;
            left &= left - 1;
            if levels[at].abs() == 1 {
                (sum, count) = (sum + f64::from(ratios[at].abs()), count + 1);
            }
        }
        nonzero.push(mask, &levels);
        model.code(&mut coder, mask, &levels, |_, _| {});
        if let Some(keeper) = &mut keeper
            && let Some(factor) = keeper.wrote(shares, coder.len() - first)
        {
            tradeoff.lambda = lambda * factor;
        }
    }
    coder.finish();
    LoweredLevels {
        one: match count {
            0 => tradeoff.one,
            _ => (sum / count as f64) as f32,
        },
        levels: nonzero,
        saved: keeper.map_or(0.0, |keeper| keeper.saved(out.len() - first)),
    }
}

impl Model {
    /// Lowers levels of the next group, of which those at the bits of `mask` are not zero; returns the bits of those that are
    /// not zero then.
    #[inline(never)]
    fn lower(&self, mut mask: u32, levels: &mut [i32; GROUP], ratios: &[f32; GROUP], tradeoff: Tradeoff) -> u32 {
        let lambda = tradeoff.lambda / (1 << COST) as f32;
        let mut candidates = [Candidate::default(); GROUP];
        let mut count = 0;
        let mut left = mask;
        while left != 0 {
            let at = left.trailing_zeros() as usize % GROUP;
            left &= left - 1;
            candidates[count] = self.candidate(at, levels[at], ratios[at].abs(), lambda, tradeoff.one);
            count += 1;
        }
        let candidates = &mut candidates[..count];
        // A group without nonzero values costs no flags beside its own, so this is what any of them must gain.
        let [none, any] = self.flags.group_costs();
        let least = lambda * (any as f32 - none as f32);
        let gain = |candidate: &Candidate| {
            if candidate.is_fixed {
                f32::MAX
            } else {
                candidate.gain.max(0.0)
            }
        };
        if candidates.iter().map(gain).sum::<f32>() <= least {
            return 0;
        }
        if count > 1 {
            candidates.sort_by(|a, b| a.gain.total_cmp(&b.gain));
        }
        if candidates.iter().any(|candidate| !candidate.is_fixed) {
            mask = self.keep(candidates, mask, lambda);
        }
        for candidate in candidates {
            levels[candidate.at] = candidate.level;
        }
        mask
    }

    /// The bits of the candidates that do not become zero. `candidates`: by ascending gain.
    #[inline(never)]
    fn keep(&self, candidates: &[Candidate], mut mask: u32, lambda: f32) -> u32 {
        let flags = self.flags.costs();
        let mut cost = flags.of(mask);
        for candidate in candidates.iter().filter(|candidate| !candidate.is_fixed) {
            let without = mask & !(1 << candidate.at);
            let less = flags.without(mask, cost, candidate.at);
            if candidate.gain <= lambda * (cost as f32 - less as f32) {
                (mask, cost) = (without, less);
            }
        }
        // Several values that each pay only beside the others.
        let kept = candidates.iter().filter(|candidate| mask >> candidate.at & 1 != 0);
        let gain: f32 = kept.clone().map(|candidate| candidate.gain).sum();
        let is_free = kept.clone().all(|candidate| !candidate.is_fixed);
        if is_free && gain <= lambda * (cost as f32 - flags.of(0) as f32) {
            mask = 0;
        }
        mask
    }

    /// The better of a level and the next lower one, which is not zero, for a value of `ratio` steps.
    #[inline(always)]
    fn candidate(&self, at: usize, level: i32, ratio: f32, lambda: f32, one: f32) -> Candidate {
        let magnitude = level.unsigned_abs();
        if magnitude as usize > UNARY {
            return Candidate {
                at,
                level,
                gain: f32::MAX,
                is_fixed: true,
            };
        }
        let col = self.flags.col() + at;
        let place = self.place(col);
        let more = |below: u32, is_more: bool| {
            let index = below as usize - 1;
            self.more[index][place].inherited(self.any_more[index]).cost(is_more)
        };
        let sign = self.signs.cost(col, level < 0);
        let loss = |magnitude: u32, cost: u32| {
            let decoded = if magnitude == 1 { one } else { magnitude as f32 };
            (ratio - decoded) * (ratio - decoded) + lambda * cost as f32
        };
        let shared = (1..magnitude.saturating_sub(1)).fold(sign, |sum, below| sum + more(below, true));
        let end = more(magnitude, false);
        let mut best = level;
        let mut least = loss(magnitude, shared + end);
        if magnitude > 1 {
            least = loss(magnitude, shared + more(magnitude - 1, true) + end);
            let lower = loss(magnitude - 1, shared + more(magnitude - 1, false));
            if ratio <= magnitude as f32 && lower < least {
                (best, least) = (level - level.signum(), lower);
            }
        }
        Candidate {
            at,
            level: best,
            gain: ratio * ratio - least,
            is_fixed: ratio > 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::context::levels::nonzero::Place;
    use crate::code::context::levels::{LevelsDecoder, encode_scaled};
    use crate::quantize::dead_zone::WORTH;
    use crate::quantize::dead_zone::gather::gather;
    use crate::quantize::laws::heavy;
    use crate::quantize::numbers::root_mean_square;

    fn shapes(len: usize) -> [Shape; 3] {
        [1, 7, len / 5].map(|rows| Shape { rows, cols: len / rows })
    }

    /// Levels before and after, bytes before and after, and the mean after.
    fn lowered(values: &[f32], step: f32, shape: Shape) -> ([Vec<i32>; 2], [usize; 2], f32) {
        let (scaled, one) = gather(values, shape, step, 0.66, 1e9);
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let read = |nonzero: &NonzeroLevels| {
            let mut levels = vec![0; values.len()];
            Place::first(shape.cols).read(nonzero, values.len(), |at, level| levels[at] = level);
            levels
        };
        let before = read(&encode_scaled(&scaled, shape, &mut plain));
        let tradeoff = Tradeoff {
            one,
            lambda: WORTH as f32,
            aim: None,
        };
        let lowered = encode_lowered(&scaled, shape, tradeoff, &mut out);
        let levels = read(&lowered.levels);
        let (mut decoder, mut decoded) = (LevelsDecoder::new(&out, shape), vec![0; levels.len()]);
        decoded
            .chunks_mut(100)
            .for_each(|part| decoder.read(part.len(), |at, level| part[at] = level));
        assert!(decoder.finish() && decoded == levels, "what was chosen is decoded");
        ([before, levels], [plain.len(), out.len()], lowered.one)
    }

    #[test]
    fn levels_fall_by_one_at_most_and_errors_stay_within_a_step() {
        let values = heavy(7 * 305, 3);
        let rms = root_mean_square(&values) as f32;
        for (shape, relative) in shapes(values.len()).into_iter().zip([0.02, 1.0, 3.0]) {
            let step = relative * rms;
            let ([before, after], ..) = lowered(&values, step, shape);
            for ((before, after), value) in before.iter().zip(&after).zip(&values) {
                let fall = before.abs() - after.abs();
                assert!((0..=1).contains(&fall) && after * before >= 0, "{before} {after}");
                assert!(fall == 0 || value.abs() <= before.abs() as f32 * step * 1.00001);
            }
        }
    }

    #[test]
    fn what_is_lowered_saves_more_than_it_loses() {
        let values = heavy(7 * 3050, 4);
        let rms = root_mean_square(&values) as f32;
        for shape in shapes(values.len()) {
            for relative in [0.3, 1.0, 2.0, 4.0] {
                let step = relative * rms;
                let ([before, after], bytes, mean) = lowered(&values, step, shape);
                let cost = |levels: &[i32], mean: f32, bytes: usize| {
                    let errors = levels.iter().zip(&values).map(|(&level, &value)| {
                        let unit = if level.abs() == 1 { mean } else { 1.0 };
                        f64::from(value / step - level as f32 * unit).powi(2)
                    });
                    errors.sum::<f64>() + WORTH * 8.0 * bytes as f64
                };
                let ones = before.iter().zip(&values).filter(|(level, _)| level.abs() == 1);
                let (sum, count) = ones.fold((0.0, 0.0), |(sum, count), (_, value)| (sum + value.abs(), count + 1.0));
                let (plain, chosen) = (
                    cost(&before, sum / count / step, bytes[0]),
                    cost(&after, mean, bytes[1]),
                );
                assert!(
                    chosen < 1.001 * plain && (relative < 1.0 || (bytes[1] < bytes[0] && chosen < plain)),
                    "{shape:?} {relative}: {chosen} for {plain}"
                );
            }
        }
    }

    #[test]
    fn large_levels_stay_and_zeros_have_no_mean() {
        let tradeoff = Tradeoff {
            one: 1.1,
            lambda: WORTH as f32,
            aim: None,
        };
        let of = |values: &[f32]| {
            let shape = Shape::row(values.len());
            let (scaled, _) = gather(values, shape, 1.0, 0.66, (1 << 30) as f32);
            let lowered = encode_lowered(&scaled, shape, tradeoff, &mut Vec::new());
            (lowered.levels.levels().to_vec(), lowered.one)
        };
        assert_eq!(of(&[1e38, -100.4, 15.9, 0.0]), (vec![1 << 30, -100, 16], 1.1));
        assert_eq!(of(&[0.0; 20]), (vec![], 1.1));
    }
}
