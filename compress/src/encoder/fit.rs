//! Encodes the sections of a frame, without or within a limit on their bytes.

use crate::budget::allot::Allotment;
use crate::budget::curve::Curve;
use crate::budget::estimate::SECTION;
use crate::encoder::attempts::{Within, largest_frame};
use crate::encoder::split_low_rank;
use crate::encoder::task::{ByteLimit, EncodeTask, FrameLimits};
use crate::error::Error;
use crate::layout::Role;
use crate::section::encode::encode;
use crate::section::input::{EncodedSection, Input};
use crate::threads;

// Largest relative error of one section in a frame whose error is limited, unless that limit is larger. At equal
// slopes, a section of little energy, such as a normalization, would be left out until its residual has grown; with
// this limit it sends its largest values in every frame.
const SECTION_ERROR: f64 = 0.9;

/// Encodes each task with its own step or density.
pub(crate) fn encode_all(tasks: Vec<EncodeTask<'_>>, threads: usize) -> Result<Vec<EncodedSection>, Error> {
    threads::map(tasks, threads, |mut task: EncodeTask<'_>| {
        if Curve::has_step(&task.input) {
            let curve = Curve::weighted(&task.input, 1.0, 1.0, 0.0);
            let step = curve.own_step(&task.input);
            split_low_rank::choose(&mut task, &curve, step, 0.0);
        }
        encode(&task.input, task.warm)
    })
    .into_iter()
    .collect()
}

/// Encodes the tasks within their budget, or as small as `limits.most` if the sections take more than that.
///
/// # Errors
/// Those of [`encode_within`].
pub(crate) fn encode_limited(
    limits: FrameLimits,
    mut tasks: Vec<EncodeTask<'_>>,
    threads: usize,
) -> Result<Vec<EncodedSection>, Error> {
    if let Some(most) = limits.most {
        let sections = encode_aimed(
            limits.budget,
            tasks.iter_mut().map(EncodeTask::again).collect(),
            threads,
        )?;
        let bytes: u64 = sections.iter().map(|section| section.bytes.len() as u64).sum();
        if bytes <= most.bytes {
            return Ok(sections);
        }
        return encode_within(most, tasks, threads);
    }
    encode_aimed(limits.budget, tasks, threads)
}

fn encode_aimed(
    budget: Option<ByteLimit>,
    tasks: Vec<EncodeTask<'_>>,
    threads: usize,
) -> Result<Vec<EncodedSection>, Error> {
    match budget {
        None => encode_all(tasks, threads),
        Some(limit) => encode_within(limit, tasks, threads),
    }
}

/// Encodes the tasks so that their sections together take at most `limit`.
///
/// # Errors
/// `Usage` if that is impossible and `limit` is firm.
pub(crate) fn encode_within(
    limit: ByteLimit,
    tasks: Vec<EncodeTask<'_>>,
    threads: usize,
) -> Result<Vec<EncodedSection>, Error> {
    let places: Vec<bool> = tasks.iter().map(|task| Curve::has_knob(&task.input)).collect();
    let is_counted = |task: &EncodeTask<'_>| limit.counts_aside || task.role == Role::Trained;
    let mut free = Vec::new();
    let mut fixed = Vec::new();
    for (task, &is_free) in tasks.into_iter().zip(&places) {
        if is_free { free.push(task) } else { fixed.push(task) }
    }
    let counted: Vec<bool> = fixed.iter().map(is_counted).collect();
    let fixed = encode_all(fixed, threads)?;
    let sizes = fixed.iter().map(|section| section.bytes.len() as u64).zip(counted);
    let taken: u64 = sizes.filter(|(_, is_counted)| *is_counted).map(|(size, _)| size).sum();
    if limit.is_firm && taken > limit.bytes {
        return Err(Error::Usage(format!(
            "the budget leaves {} bytes for values, and tensors whose codec has no step or density to choose take {taken}",
            limit.bytes
        )));
    }
    let left = ByteLimit {
        bytes: limit.bytes.saturating_sub(taken),
        ..limit
    };
    let fitted = fit(left, free, threads)?;
    let mut fitted = fitted.into_iter();
    let mut fixed = fixed.into_iter();
    Ok(places
        .into_iter()
        .filter_map(|is_free| if is_free { fitted.next() } else { fixed.next() })
        .collect())
}

fn fit(limit: ByteLimit, mut tasks: Vec<EncodeTask<'_>>, threads: usize) -> Result<Vec<EncodedSection>, Error> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let least = if limit.counts_aside {
        0
    } else {
        SECTION * tasks.len() as u64
    };
    let within = Within {
        bytes: limit.bytes.max(least),
        error: limit.error,
    };
    let limited = |mut curve: Curve| {
        let error = limit.error.map(|error| error.max(SECTION_ERROR));
        error.into_iter().for_each(|error| curve.limit(error));
        curve
    };
    let len: usize = tasks.iter().map(|task| task.input.tensor.values.len()).sum();
    // No section takes all bits, and a small one hardly many times the bits a value of all.
    let enough = |input: &Input<'_>, goal: f64| {
        (goal * 8.0).min(input.tensor.values.len() as f64 * (goal * 8.0 / len as f64 * 2.0 + 6.0))
    };
    let mut curves = threads::map(tasks.iter().collect(), threads, |task| {
        let enough = enough(&task.input, within.bytes as f64);
        limited(Curve::weighted(&task.input, *task.ratio, task.weight, enough))
    });
    let (_, goal) = within.limits(&mut curves);
    for _ in 0..2 {
        let steps = Allotment::new(&curves, goal * 8.0).knobs();
        let work: Vec<_> = tasks.iter_mut().zip(&curves).zip(steps).collect();
        let better = threads::map(work, threads, |((task, curve), step)| {
            let enough = enough(&task.input, goal);
            split_low_rank::choose(task, curve, step, enough).map(limited)
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
    let inputs: Vec<&Input<'_>> = tasks.iter().map(|task| &task.input).collect();
    let mut ratios: Vec<f64> = tasks.iter().map(|task| *task.ratio).collect();
    let best = largest_frame(within, &mut curves, &inputs, &mut ratios, threads)?;
    let pairs = tasks.iter_mut().zip(ratios);
    pairs.for_each(|(task, ratio)| *task.ratio = ratio);
    if let Some(sections) = best {
        return Ok(sections);
    }
    let sections = encode_least(&curves, &tasks, limit, threads)?;
    let bytes: u64 = sections.iter().map(|section| section.bytes.len() as u64).sum();
    if bytes <= within.bytes || !limit.is_firm {
        return Ok(sections);
    }
    Err(Error::Usage(format!(
        "the budget leaves {} bytes for values, and sections without any take {bytes}",
        within.bytes
    )))
}

/// The smallest sections within the limit of the error. Without such a limit they have no values.
fn encode_least(
    curves: &[Curve],
    tasks: &[EncodeTask<'_>],
    limit: ByteLimit,
    threads: usize,
) -> Result<Vec<EncodedSection>, Error> {
    let pairs: Vec<_> = curves.iter().zip(tasks).collect();
    let encoded = threads::map(pairs, threads, |(curve, task)| {
        let mut input = task.input.clone();
        // Empty components take more bytes than no components.
        if limit.error.is_none() && input.leading.take().is_some() {
            let whole = Curve::weighted(&input, 1.0, 1.0, 0.0);
            return encode(&whole.with_knob(&input, whole.coarsest()), &mut None);
        }
        encode(&curve.with_knob(&input, curve.points[0].knob), &mut None)
    });
    encoded.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::method::CodeSpec;
    use crate::layout::Shape;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::dead_zone::DeadZone;
    use crate::reduce::keep;
    use crate::reduce::method::TensorValues;
    use crate::rng::KeyedRng;
    use crate::section::decode::Section;
    use crate::section::sinks::Set;
    use crate::wire::Reader;

    /// Tensors of different lengths, scales and tails, like those of a network.
    fn tensors(seed: u64) -> Vec<Vec<f32>> {
        let rng = KeyedRng::new(seed, 0);
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
            let scale = scale * (8.0 * rng.unit(1_000_000 + at) - 4.0).exp2();
            let values = (at..at + len).map(|at| {
                let magnitude = (1.0 - rng.unit(at)).ln().powi(power) * scale;
                if rng.bits(at) & 1 == 0 { magnitude } else { -magnitude }
            });
            at += len;
            values.collect()
        };
        kinds.into_iter().map(&mut tensor).collect()
    }

    fn input(values: &[f32], code: CodeSpec) -> Input<'_> {
        let cols = values.len() / 4;
        Input {
            tensor: TensorValues {
                values,
                squared_gradients: None,
                residual: None,
                shape: Shape { rows: 4, cols },
                places: 1,
                quantize: QuantizeSpec::DeadZone(DeadZone::default()),
                rng: KeyedRng::new(0, 0),
                unbiased: false,
                threads: 1,
            },
            chosen: keep::all(),
            leading: None,
            code,
        }
    }

    /// Bytes and squared error of sections.
    fn outcome(inputs: &[Input<'_>], sections: &[EncodedSection]) -> (u64, f64) {
        let error = |(input, section): (&Input<'_>, &EncodedSection)| -> f64 {
            let mut out = vec![0.0; input.tensor.values.len()];
            let read = Section::read(&mut Reader::new(&section.bytes), input.tensor.shape, input.tensor.rng).unwrap();
            read.decode(&mut Set(&mut out)).unwrap();
            let pairs = input.tensor.values.iter().zip(out);
            pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        let bytes = sections.iter().map(|section| section.bytes.len() as u64).sum();
        (bytes, inputs.iter().zip(sections).map(error).sum())
    }

    fn within(inputs: &[Input<'_>], limit: ByteLimit) -> (u64, f64) {
        let mut learned = vec![(None, 1.0); inputs.len()];
        let mut sections = Vec::new();
        // The second frame starts with the ratios observed in the first.
        for _ in 0..2 {
            let tasks = inputs.iter().zip(&mut learned);
            let tasks = tasks.map(|(input, (warm, ratio))| EncodeTask {
                input: input.clone(),
                role: Role::Trained,
                weight: 1.0,
                warm,
                ratio,
                components: None,
            });
            sections = encode_within(limit, tasks.collect(), 2).unwrap();
        }
        outcome(inputs, &sections)
    }

    fn limit(bytes: u64) -> ByteLimit {
        ByteLimit {
            bytes,
            counts_aside: false,
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
                let (bytes, error) = within(&inputs, limit(most));
                assert!(bytes <= most);
                let equal = |step: f64| {
                    let adjusted = inputs.iter().map(|input| {
                        let curve = Curve::new(input, 1.0);
                        encode(&curve.with_knob(input, step.min(curve.coarsest())), &mut None).unwrap()
                    });
                    outcome(&inputs, &adjusted.collect::<Vec<_>>())
                };
                let (mut fits, mut passes) = (20.0f64, -30.0f64);
                for _ in 0..18 {
                    let middle = (fits + passes) / 2.0;
                    let fitting = equal(middle.exp2()).0 <= bytes;
                    (fits, passes) = if fitting { (middle, passes) } else { (fits, middle) };
                }
                let one = equal(fits.exp2()).1;
                // The curves know only about what the coder lowers.
                let slack = if code == CodeSpec::Context { 1.05 } else { 1.02 };
                assert!(
                    error <= slack * one,
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
            let (_, error) = within(&inputs, limit(bytes));
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
            let tasks = inputs.iter().zip(&mut learned);
            let tasks = tasks.map(|(input, (warm, ratio))| EncodeTask {
                input: input.clone(),
                role: Role::Trained,
                weight: 1.0,
                warm,
                ratio,
                components: None,
            });
            let limit = ByteLimit { error, ..limit(bytes) };
            encode_within(limit, tasks.collect(), 1).unwrap()
        };
        let raised = of(300, Some(0.2));
        let mut whole = 0.0;
        for (input, section) in inputs.iter().zip(&raised) {
            let energy: f64 = input.tensor.values.iter().map(|&value| f64::from(value).powi(2)).sum();
            let (_, error) = outcome(std::slice::from_ref(input), std::slice::from_ref(section));
            assert!(error <= SECTION_ERROR.powi(2) * energy, "{error:e} of {energy:e}");
            whole += energy;
        }
        let (needed, error) = outcome(&inputs, &raised);
        assert!((400..4000).contains(&needed), "{needed}");
        assert!((0.6..1.2).contains(&(error / (0.04 * whole))), "{error:e} of {whole:e}");
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
