//! Attempts to encode the sections of a frame within a limit on their bytes: an estimate is off by some percent, and the size of
//! a section with levels that the coder lowers jumps by as much with its step.

use std::ops::RangeInclusive;

use crate::budget::allot::{Allotment, bits_within};
use crate::budget::curve::Curve;
use crate::budget::rate_controller::RateController;
use crate::code::context::levels::rate::Aim;
use crate::error::Error;
use crate::section::encode::encode;
use crate::section::input::{EncodedSection, Input};
use crate::threads;

// Number of attempts after which the largest frame that fits wins.
const TRIES: usize = 10;
// Maximum number of attempts as long as none fits: sections without any values are the last resort.
const MOST_TRIES: usize = 2 * TRIES;
// The attempt before which those that encode only the shortest sections give up.
const FEW_TRIES: usize = 4;
// The attempt after which the largest section of the best frame stays.
const LAST_TRIES: usize = 6;
// Bytes of the sections that are encoded again, as a multiple of the bytes that they are to take or give.
const PART: f64 = 12.0;
// Bits a value that they may take or give: second-order changes of the error stay below 1 %.
const CHANGE: f64 = 0.06;
// The search ends with an attempt that uses at least this share of the limit: less after each attempt, as the last
// percent is not worth the time of several.
const ENOUGH: [f64; 4] = [0.985, 0.98, 0.975, 0.97];
// What the other sections may leave to the largest, as a multiple of the bytes that it is expected to take: beyond,
// slopes would become too unequal.
const NEAR: RangeInclusive<f64> = 0.83..=1.2;
// Share of the limit that attempts aim at.
const AIM: f64 = 0.9925;

/// What a frame's sections may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within {
    /// Bytes, unless the error needs more.
    pub(crate) bytes: u64,
    /// Largest relative error of all sections together.
    pub(crate) error: Option<f64>,
}

impl Within {
    /// The limit in bytes, and what attempts aim at, by the curves as they are.
    pub(crate) fn limits(self, curves: &mut [Curve]) -> (u64, f64) {
        let asked = self.bytes as f64 * AIM;
        let goal = self
            .error
            .map_or(asked, |error| bits_within(curves, error, asked * 8.0) / 8.0);
        (self.bytes.max((goal / AIM) as u64), goal)
    }
}

/// The sections of the largest frame within the limit; `None` if no attempt fits. Corrects the curves, and the `ratios` of actual
/// to estimated bits. Shapes: one curve, input and ratio for each section.
///
/// # Errors
/// Those of [`encode`].
pub(crate) fn largest_frame(
    within: Within,
    curves: &mut [Curve],
    inputs: &[&Input<'_>],
    ratios: &mut [f64],
    threads: usize,
) -> Result<Option<Vec<EncodedSection>>, Error> {
    let (mut left, mut goal) = within.limits(curves);
    let all: Vec<usize> = (0..inputs.len()).collect();
    // The sections that the next attempt encodes; it keeps the others.
    let mut open = all.clone();
    let mut sections = vec![EncodedSection::default(); inputs.len()];
    // What they are to take together.
    let mut wanted = goal;
    let mut aim = RateController::new(goal * 8.0, goal);
    let mut best: Option<(u64, Vec<EncodedSection>)> = None;
    let mut before: Option<(Vec<f64>, u64)> = None;
    for attempt in 0..MOST_TRIES {
        if attempt >= TRIES && best.is_some() {
            break;
        }
        let part: Vec<&Curve> = open.iter().map(|&at| &curves[at]).collect();
        let allotment = Allotment::new(&part, aim.target());
        let knobs = allotment.knobs();
        let is_coarsest = allotment.is_coarsest(&part);
        let same = before.as_ref().filter(|(same, _)| *same == knobs);
        if open.len() < all.len() && (attempt == FEW_TRIES || is_coarsest || same.is_some()) {
            if attempt > LAST_TRIES {
                break;
            }
            // The few do not make up for the difference.
            (open, wanted) = (all.clone(), goal);
            (aim, before) = (RateController::new(goal * 8.0, goal), None);
            continue;
        }
        if let Some((_, bytes)) = same {
            if best.is_some() || is_coarsest {
                break;
            }
            // Ratios are bounded: corrected curves may ask again for knobs that take too many bytes.
            aim.missed(*bytes as f64, false);
            continue;
        }
        let tasks = open.iter().zip(part).zip(allotment.points());
        let tasks = tasks.map(|((&at, curve), point)| Attempt {
            curve,
            input: inputs[at],
            knob: point.knob,
            bytes: point.bits / 8.0,
        });
        let encoded = encode_near(&tasks.collect::<Vec<_>>(), wanted, threads)?;
        for (&at, section) in open.iter().zip(encoded) {
            sections[at] = section;
        }
        let sizes: Vec<u64> = sections.iter().map(|section| section.bytes.len() as u64).collect();
        let bytes: u64 = sizes.iter().sum();
        if attempt == 0 {
            // Corrects each curve by the coded size of its section, so that the next allotment is more accurate.
            let units = curves.iter_mut().zip(&knobs).zip(&sections).zip(&mut *ratios);
            units
                .for_each(|(((curve, &knob), section), ratio)| *ratio = curve.observed_ratio(knob, section.unvaried()));
            (left, goal) = within.limits(curves);
            (wanted, aim) = (goal, RateController::new(goal * 8.0, goal));
        }
        if bytes <= left && best.as_ref().is_none_or(|(most, _)| bytes > *most) {
            best = Some((bytes, sections.clone()));
        }
        let enough = ENOUGH[attempt.min(ENOUGH.len() - 1)] * left as f64;
        if attempt > 0 {
            let taken: u64 = open.iter().map(|&at| sizes[at]).sum();
            aim.missed(taken as f64, bytes <= left);
        }
        if bytes > left && within.error.is_some() && is_coarsest && open.len() == all.len() {
            // A smaller frame would exceed the error limit of a section.
            best = Some((bytes, sections));
            break;
        }
        if best.as_ref().is_some_and(|(most, _)| *most as f64 >= enough) {
            break;
        }
        before = Some((knobs, bytes));
        let mut sizes = sizes;
        if attempt == 0 {
            let lens: Vec<usize> = inputs.iter().map(|input| input.tensor.values.len()).collect();
            open = shortest(&lens, &sizes, goal);
        } else if attempt == LAST_TRIES
            && let Some((_, frame)) = &best
        {
            // The bytes of the largest section jump with its knob: the others may take what it leaves.
            sections.clone_from(frame);
            sizes = sections.iter().map(|section| section.bytes.len() as u64).collect();
            let largest = all.iter().copied().max_by_key(|&at| sizes[at]);
            open.retain(|&at| Some(at) != largest);
        }
        if open.len() < all.len() && (attempt == 0 || attempt == LAST_TRIES) {
            let kept = sizes.iter().sum::<u64>() - open.iter().map(|&at| sizes[at]).sum::<u64>();
            wanted = (goal - kept as f64).max(1.0);
            (aim, before) = (RateController::new(wanted * 8.0, wanted), None);
        }
    }
    Ok(best.map(|(_, sections)| sections))
}

/// The sections to encode again after an attempt that took `sizes` in place of `goal`: the shortest, as few as can take or
/// give the difference without leaving equal slopes far behind; all, if those are not much fewer values. Shapes: `lens`
/// (values) and `sizes` (bytes) by section.
fn shortest(lens: &[usize], sizes: &[u64], goal: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lens.len()).collect();
    order.sort_by_key(|&at| lens[at]);
    let difference = (sizes.iter().sum::<u64>() as f64 - goal).abs();
    let mut count = 0;
    let mut bytes = 0.0;
    let mut values = 0;
    while count < order.len() && (bytes < difference * PART || (values as f64) * CHANGE < difference * 8.0) {
        (bytes, values) = (bytes + sizes[order[count]] as f64, values + lens[order[count]]);
        count += 1;
    }
    if 2 * values < lens.iter().sum() {
        order.truncate(count);
    }
    order.sort_unstable();
    order
}

/// A section to encode at a knob at which its curve expects `bytes`.
struct Attempt<'c, 'v> {
    curve: &'c Curve,
    input: &'c Input<'v>,
    knob: f64,
    bytes: f64,
}

impl Attempt<'_, '_> {
    /// Encodes the section, as near to `bytes` as its coder can if they are given.
    fn encode(&self, bytes: Option<f64>) -> Result<EncodedSection, Error> {
        let mut input = self.curve.with_knob(self.input, self.knob);
        let aim = bytes.map(|bytes| Aim::new(bytes, self.bytes));
        input.tensor.quantize = input.tensor.quantize.with_zone(|zone| zone.within(aim));
        encode(&input, &mut None)
    }
}

/// Encodes each attempt. The largest is the last, and its coder aims at what the others leave of `goal` bytes: so a frame meets
/// its budget although estimates are off by some percent.
fn encode_near(attempts: &[Attempt<'_, '_>], goal: f64, threads: usize) -> Result<Vec<EncodedSection>, Error> {
    let sizes = attempts.iter().map(|attempt| attempt.bytes).enumerate();
    let largest = sizes.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at);
    let (last, others): (Vec<_>, Vec<_>) = attempts.iter().enumerate().partition(|(at, _)| Some(*at) == largest);
    let encoded = threads::map(others, threads, |(_, attempt)| attempt.encode(None));
    let mut sections = encoded.into_iter().collect::<Result<Vec<_>, Error>>()?;
    for (at, attempt) in last {
        let taken: usize = sections.iter().map(|section| section.bytes.len()).sum();
        let left = goal - taken as f64;
        sections.insert(
            at,
            attempt.encode(Some(left).filter(|left| NEAR.contains(&(left / attempt.bytes))))?,
        );
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_short_sections_take_a_small_difference_and_all_a_large_one() {
        let (lens, sizes) = ([50_000, 400_000, 1000, 3000], [8000, 9000, 500, 1500]);
        assert_eq!(shortest(&lens, &sizes, 18_999.0), [2], "one byte");
        assert_eq!(shortest(&lens, &sizes, 18_600.0), [0, 2, 3], "2 %");
        assert_eq!(shortest(&lens, &sizes, 17_000.0), [0, 1, 2, 3], "10 %");
        assert_eq!(shortest(&lens[..1], &sizes[..1], 7900.0), [0]);
    }
}
