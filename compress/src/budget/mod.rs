//! A frame that takes no more bytes than it may, and little less.
//!
//! Each unit with a knob (the step of its dead zone, or the density of its top-k) has a rate-distortion curve, read off a
//! histogram of its magnitudes ([`curve`]). One Lagrange multiplier for the frame chooses a point on each, the one of least
//! `error + lambda * bits` (Shoham and Gersho 1988), and a common factor of all knobs makes the sum of the bits what it is
//! to be. Nothing is coded for that.
//!
//! Coders do better than the entropy that the curves tell, or a little worse, and not for all units alike. So the frame is
//! coded, and what each unit took per bit foretold corrects its curve; the quotients are remembered from frame to frame, and
//! then one try is often enough.

mod allot;
mod apart;
mod curve;
mod estimate;
mod watch;

pub use estimate::BudgetEstimate;
pub use watch::{BudgetWatch, OverBudget};

use allot::Allotment;
use curve::Curve;

use crate::encoder::UnitState;
use crate::quantize::QuantizeSpec;
use crate::reduce::{RandomK, ReduceSpec, TopK};
use crate::section::{Encoded, Input, encode};
use crate::spec::Method;
use crate::{Budget, Error, threads};

/// Tries at most; the best that fits is taken.
const TRIES: usize = 10;
/// A try that uses this share of the budget is good enough.
const ENOUGH: f64 = 0.985;
/// What a try aims at.
const AIM: f64 = 0.9925;

/// Most bytes of a section beside its values, and of a frame beside its sections.
const SECTION: u64 = 16;
const FRAME: u64 = 64;

/// One unit to be encoded, and what was learned of it.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) input: Input<'a>,
    /// The second factor of the last time.
    pub(crate) warm: &'a mut Option<Vec<f32>>,
    /// Bits that coding took for each one foretold, the last time.
    pub(crate) ratio: &'a mut f64,
}

/// Bytes of the sections of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    /// Whether more are an error. Otherwise what has no knob may take more, and the rest then next to nothing.
    pub(crate) is_firm: bool,
    /// Largest relative error of a unit with a step or a density: what that takes is taken, even if it is more than `bytes`.
    pub(crate) error: Option<f64>,
}

/// Whether a budget can be kept, whatever the values.
///
/// # Errors
/// `Usage` if it is in bytes, and less than headers and units without a knob may take.
pub(crate) fn check(budget: Budget, units: &[UnitState]) -> Result<(), Error> {
    let Budget::Bytes(bytes) = budget else {
        return Ok(());
    };
    let most = |state: &UnitState| most_bytes(&state.method, state.unit.shape.len()) as u64 + SECTION;
    let least: u64 = units.iter().map(most).sum::<u64>() + FRAME;
    if least <= bytes {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "a budget of {budget} a frame may not do: up to {least} bytes go to headers and to tensors whose codec has no step \
         or density to choose"
    )))
}

/// Most bytes that the values of a unit of `len` may take if it has no knob; 0 if it has one.
fn most_bytes(Method { reduce, quantize, .. }: &Method, len: usize) -> usize {
    let bytes = match reduce {
        ReduceSpec::TopK(TopK { chunk: None, density }) if density.counts() => 0,
        ReduceSpec::Keep | ReduceSpec::Auto if matches!(quantize, QuantizeSpec::DeadZone(_)) => 0,
        ReduceSpec::Keep | ReduceSpec::Auto => quantize.most_bytes(len),
        ReduceSpec::RandomK(RandomK { density }) => quantize.most_bytes(density.count(len)),
        _ => len * 4,
    };
    bytes.min(len * 4)
}

/// Encodes each job as it is.
pub(crate) fn encode_all(jobs: Vec<Job<'_>>, threads: usize) -> Result<Vec<Encoded>, Error> {
    let work = |mut job: Job<'_>| {
        if Curve::has_step(&job.input) {
            let curve = Curve::new(&job.input, 1.0);
            let step = curve.own_step(&job.input);
            apart::choose(&mut job, &curve, step);
        }
        encode(&job.input, job.warm)
    };
    threads::map(jobs, threads, work).into_iter().collect()
}

/// Encodes the jobs so that their sections take no more than `room`.
///
/// # Errors
/// `Usage` if it cannot be done and `room` is firm.
pub(crate) fn encode_within(room: Room, jobs: Vec<Job<'_>>, threads: usize) -> Result<Vec<Encoded>, Error> {
    let places: Vec<bool> = jobs.iter().map(|job| Curve::has_knob(&job.input)).collect();
    let (mut free, mut fixed) = (Vec::new(), Vec::new());
    for (job, &is_free) in jobs.into_iter().zip(&places) {
        if is_free { free.push(job) } else { fixed.push(job) }
    }
    let fixed = encode_all(fixed, threads)?;
    let taken: u64 = fixed.iter().map(|section| section.bytes.len() as u64).sum();
    if room.is_firm && taken > room.bytes {
        return Err(Error::Usage(format!(
            "the budget leaves {} bytes for values, and tensors whose codec has no step or density to choose take {taken}",
            room.bytes
        )));
    }
    let left = Room {
        bytes: room.bytes.saturating_sub(taken),
        ..room
    };
    let fitted = fit(left, free, threads)?;
    let (mut fitted, mut fixed) = (fitted.into_iter(), fixed.into_iter());
    let of = |is_free| if is_free { fitted.next() } else { fixed.next() };
    Ok(places.into_iter().filter_map(of).collect())
}

fn fit(room: Room, mut jobs: Vec<Job<'_>>, threads: usize) -> Result<Vec<Encoded>, Error> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let least = if room.is_firm { 0 } else { SECTION * jobs.len() as u64 };
    let left = room.bytes.max(least);
    let goal = left as f64 * AIM;
    let limited = |mut curve: Curve| {
        room.error.into_iter().for_each(|error| curve.limit(error));
        curve
    };
    let mut curves = threads::map(jobs.iter().collect(), threads, |job| {
        limited(Curve::new(&job.input, *job.ratio))
    });
    for _ in 0..2 {
        let steps = Allotment::new(&curves, goal * 8.0).knobs();
        let work: Vec<_> = jobs.iter_mut().zip(&curves).zip(steps).collect();
        let better = threads::map(work, threads, |((job, curve), step)| {
            apart::choose(job, curve, step).map(limited)
        });
        if better.iter().all(Option::is_none) {
            break;
        }
        let pairs = curves.iter_mut().zip(better);
        pairs.for_each(|(curve, better)| {
            if let Some(better) = better {
                *curve = better
            }
        });
    }
    let inputs: Vec<&Input<'_>> = jobs.iter().map(|job| &job.input).collect();
    let mut aim = Aim::new(goal * 8.0, goal);
    let mut best: Option<(u64, Vec<Encoded>)> = None;
    let mut before = None;
    let mut ratios: Vec<f64> = jobs.iter().map(|job| *job.ratio).collect();
    for attempt in 0..TRIES {
        let allotment = Allotment::new(&curves, aim.target());
        let knobs = allotment.knobs();
        if before.as_ref() == Some(&knobs) {
            break;
        }
        let sections = encode_with(&curves, &inputs, &knobs, threads)?;
        let bytes: u64 = sections.iter().map(|section| section.bytes.len() as u64).sum();
        if attempt == 0 {
            // What each unit took says how its bits are to be counted, and so where they are best spent.
            let units = curves.iter_mut().zip(&knobs).zip(&sections).zip(&mut ratios);
            units.for_each(|(((curve, &knob), section), ratio)| *ratio = curve.took(knob, section.bytes.len()));
        } else {
            aim.missed(bytes as f64, bytes <= left);
        }
        let is_least = room.error.is_some() && allotment.is_coarsest(&curves);
        if bytes > left && is_least {
            // Less would leave a unit with a larger error than it may have.
            best = Some((bytes, sections));
            break;
        }
        if bytes <= left && best.as_ref().is_none_or(|(most, _)| bytes > *most) {
            best = Some((bytes, sections));
        }
        if best
            .as_ref()
            .is_some_and(|(most, _)| *most as f64 >= ENOUGH * left as f64)
        {
            break;
        }
        before = Some(knobs);
    }
    jobs.iter_mut().zip(ratios).for_each(|(job, ratio)| *job.ratio = ratio);
    if let Some((_, sections)) = best {
        return Ok(sections);
    }
    let least: Vec<f64> = curves.iter().map(|curve| curve.points[0].knob).collect();
    let inputs: Vec<&Input<'_>> = jobs.iter().map(|job| &job.input).collect();
    let sections = encode_with(&curves, &inputs, &least, threads)?;
    let bytes: u64 = sections.iter().map(|section| section.bytes.len() as u64).sum();
    if bytes <= left || !room.is_firm {
        return Ok(sections);
    }
    Err(Error::Usage(format!(
        "the budget leaves {left} bytes for values, and sections without any take {bytes}"
    )))
}

/// What to ask the curves for, so that coding gives `goal` bytes: by the secant through the last two tries, within what is
/// known to be too little and too much. All in logarithms.
#[derive(Debug)]
struct Aim {
    goal: f64,
    next: f64,
    last: Option<(f64, f64)>,
    fits: f64,
    passes: f64,
    /// Least step down while nothing has fitted.
    stride: f64,
}

impl Aim {
    fn new(first: f64, goal: f64) -> Self {
        Self {
            goal: goal.max(1.0).ln(),
            next: first.max(1.0).ln(),
            last: None,
            fits: f64::NEG_INFINITY,
            passes: f64::INFINITY,
            stride: 0.01,
        }
    }

    fn target(&self) -> f64 {
        self.next.exp()
    }

    /// The last target gave so many bytes.
    fn missed(&mut self, bytes: f64, fits: bool) {
        let (asked, given) = (self.next, bytes.max(1.0).ln());
        if fits {
            self.fits = self.fits.max(asked);
        } else {
            self.passes = self.passes.min(asked);
        }
        let slope = match self.last {
            Some((before, gave)) if (asked - before).abs() > 1e-9 => {
                ((given - gave) / (asked - before)).clamp(0.1, 4.0)
            }
            _ => 1.0,
        };
        self.last = Some((asked, given));
        self.next = asked + (self.goal - given) / slope;
        if !fits && self.fits == f64::NEG_INFINITY {
            // Where coding hardly answers, the secant would take steps too small.
            self.next = self.next.min(asked - self.stride);
            self.stride *= 2.0;
        }
        if self.next <= self.fits || self.next >= self.passes {
            let middle = (self.fits + self.passes) / 2.0;
            self.next = if middle.is_finite() { middle } else { self.next };
        }
    }
}

fn encode_with(curves: &[Curve], inputs: &[&Input<'_>], knobs: &[f64], threads: usize) -> Result<Vec<Encoded>, Error> {
    let jobs: Vec<_> = curves.iter().zip(inputs).zip(knobs).collect();
    let encoded = threads::map(jobs, threads, |((curve, input), &knob)| {
        encode(&curve.turned(input, knob), &mut None)
    });
    encoded.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Set;
    use crate::layout::Shape;
    use crate::quantize::DeadZone;
    use crate::reduce::Selection;
    use crate::rng::Draws;
    use crate::section::Section;
    use crate::spec::CodeSpec;
    use crate::wire::Reader;

    /// Tensors whose lengths, scales and tails differ, as those of a network do.
    fn tensors(seed: u64) -> Vec<Vec<f32>> {
        let draws = Draws::new(seed, 0);
        let kinds = [
            (12, 3.0, 1),
            (300, 1.0, 1),
            (5000, 0.3, 3),
            (20_000, 0.02, 2),
            (9000, 0.004, 1),
            (100, 40.0, 1),
        ];
        let mut at = 0;
        let mut tensor = |(len, scale, power): (usize, f32, i32)| -> Vec<f32> {
            let scale = scale * (8.0 * draws.unit(1_000_000 + at) - 4.0).exp2();
            let values = (at..at + len).map(|at| {
                let magnitude = (1.0 - draws.unit(at)).ln().powi(power) * scale;
                if draws.bits(at) & 1 == 0 { magnitude } else { -magnitude }
            });
            at += len;
            values.collect()
        };
        kinds.into_iter().map(&mut tensor).collect()
    }

    fn input(values: &[f32], code: CodeSpec) -> Input<'_> {
        let cols = values.len() / 4;
        Input {
            values,
            shape: Shape { rows: 4, cols },
            selection: Selection::All,
            leading: None,
            clip: None,
            quantize: QuantizeSpec::DeadZone(DeadZone::default()),
            code,
            draws: Draws::new(0, 0),
            unbiased: false,
            threads: 1,
        }
    }

    /// Bytes and squared error of sections.
    fn outcome(inputs: &[Input<'_>], sections: &[Encoded]) -> (u64, f64) {
        let error = |(input, section): (&Input<'_>, &Encoded)| -> f64 {
            let mut out = vec![0.0; input.values.len()];
            let read = Section::read(&mut Reader::new(&section.bytes), input.shape, input.draws).unwrap();
            read.decode(&mut Set(&mut out)).unwrap();
            let pairs = input.values.iter().zip(out);
            pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        let bytes = sections.iter().map(|section| section.bytes.len() as u64).sum();
        (bytes, inputs.iter().zip(sections).map(error).sum())
    }

    fn within(inputs: &[Input<'_>], room: Room) -> (u64, f64) {
        let mut learned = vec![(None, 1.0); inputs.len()];
        let mut sections = Vec::new();
        // The second frame knows how well the first was coded.
        for _ in 0..2 {
            let jobs = inputs.iter().zip(&mut learned);
            let jobs = jobs.map(|(input, (warm, ratio))| Job {
                input: input.clone(),
                warm,
                ratio,
            });
            sections = encode_within(room, jobs.collect(), 2).unwrap();
        }
        outcome(inputs, &sections)
    }

    fn room(bytes: u64) -> Room {
        Room {
            bytes,
            is_firm: false,
            error: None,
        }
    }

    #[test]
    fn frames_err_no_more_than_with_one_step_for_all_at_no_more_bytes() {
        for (seed, code) in [(1, CodeSpec::Context), (2, CodeSpec::Rans), (3, CodeSpec::Context)] {
            let values = tensors(seed);
            let inputs: Vec<Input<'_>> = values.iter().map(|values| input(values, code)).collect();
            for bits in [0.1, 0.4, 1.5, 3.0] {
                let most = (bits * 34_412.0 / 8.0) as u64;
                let (bytes, error) = within(&inputs, room(most));
                assert!(bytes <= most);
                let equal = |step: f64| {
                    let turned = inputs.iter().map(|input| {
                        let curve = Curve::new(input, 1.0);
                        encode(&curve.turned(input, step.min(curve.coarsest())), &mut None).unwrap()
                    });
                    outcome(&inputs, &turned.collect::<Vec<_>>())
                };
                let (mut fits, mut passes) = (20.0f64, -30.0f64);
                for _ in 0..18 {
                    let middle = (fits + passes) / 2.0;
                    let fitting = equal(middle.exp2()).0 <= bytes;
                    (fits, passes) = if fitting { (middle, passes) } else { (fits, middle) };
                }
                let one = equal(fits.exp2()).1;
                assert!(
                    error <= 1.02 * one,
                    "seed {seed}, {bits} bits: {error:e}, with one step {one:e}"
                );
            }
        }
    }

    #[test]
    fn frames_err_less_with_more_bytes() {
        let values = tensors(4);
        let inputs: Vec<Input<'_>> = values.iter().map(|values| input(values, CodeSpec::Context)).collect();
        let mut before = f64::INFINITY;
        for at in 0..20 {
            let bytes = (400.0 * 1.25f64.powi(at)) as u64;
            let (_, error) = within(&inputs, room(bytes));
            assert!(error <= before, "{bytes} bytes: {error:e} after {before:e}");
            before = error;
        }
    }

    #[test]
    fn a_limit_of_the_error_raises_the_bytes_as_far_as_it_must() {
        let values = tensors(5);
        let inputs: Vec<Input<'_>> = values.iter().map(|values| input(values, CodeSpec::Context)).collect();
        let of = |bytes, error| {
            let mut learned = vec![(None, 1.0); inputs.len()];
            let jobs = inputs.iter().zip(&mut learned);
            let jobs = jobs.map(|(input, (warm, ratio))| Job {
                input: input.clone(),
                warm,
                ratio,
            });
            let room = Room { error, ..room(bytes) };
            encode_within(room, jobs.collect(), 1).unwrap()
        };
        let raised = of(600, Some(0.7));
        for (input, section) in inputs.iter().zip(&raised) {
            let energy: f64 = input.values.iter().map(|&value| f64::from(value).powi(2)).sum();
            let (_, error) = outcome(std::slice::from_ref(input), std::slice::from_ref(section));
            assert!(error <= 0.5 * energy, "{error:e} of {energy:e}");
        }
        let (needed, _) = outcome(&inputs, &raised);
        assert!((800..4000).contains(&needed), "{needed}");
        assert_eq!(
            outcome(&inputs, &of(600, None)).0.max(600),
            600,
            "without one they stay"
        );
        let (plain, limited) = (
            outcome(&inputs, &of(40_000, None)),
            outcome(&inputs, &of(40_000, Some(0.7))),
        );
        assert_eq!(plain, limited, "where there is enough, a limit changes nothing");
    }
}
