//! Values to a section's bytes.

use std::borrow::Cow;

use crate::code::gaps::{encode_indices, support_bound};
use crate::code::method::{Code, CodeSpec};
use crate::error::Error;
use crate::finite::{OVERFLOW_LIMIT, all_finite};
use crate::layout::Shape;
use crate::quantize::QuantizeSpec;
use crate::quantize::recipe::Quantize;
use crate::recipe::Recipe;
use crate::reduce::components::LeadingComponents;
use crate::reduce::{Reduce, Reduction, count_sketch, low_rank, projection, random_k, threshold, top_k};
use crate::section::decode::Section;
use crate::section::input::{Encoded, Input};
use crate::section::sinks::Sink;
use crate::stages::Stages;
use crate::threads::both;
use crate::wire::{Reader, Writer};

/// Planes of fewer values are encoded one after the other: a thread costs more.
const FEW: usize = 1 << 14;

/// Encodes a tensor; as it is, if that is shorter, or if otherwise a value decoded, or what it leaves of the tensor, would
/// not be finite. `warm` is the second factor of the last time, and becomes that of this.
pub(crate) fn encode(input: &Input<'_>, warm: &mut Option<Vec<f32>>) -> Result<Encoded, Error> {
    let exact = Input {
        selection: Reduction::All,
        leading: None,
        clip: None,
        quantize: QuantizeSpec::Exact,
        code: CodeSpec::Pack,
        ..input.clone()
    };
    // Without an early end, so that it is made by lanes.
    let huge = input
        .values
        .iter()
        .fold(false, |any, value| any | (value.abs() > OVERFLOW_LIMIT));
    let mut best: Option<Encoded> = None;
    match reduce(input, warm) {
        Ok(reduced) if huge && !reduced.is_finite() => {}
        Err(Error::NotFinite(_)) if huge => {}
        reduced => {
            let reduced = reduced?;
            for &code in input.code.candidates() {
                let coded = write(input, &reduced, code);
                if best.as_ref().is_none_or(|best| coded.bytes.len() < best.bytes.len()) {
                    best = Some(coded);
                }
            }
        }
    }
    let fits = |best: &Encoded| best.bytes.len() <= 1 + input.values.len() * 4;
    match best {
        Some(best) if fits(&best) && !(huge && overflows(input, &best.bytes)) => Ok(best),
        _ => Ok(write(&exact, &Reduced::all(&exact), Code::Pack)),
    }
}

/// Whether decoding `section` fails, or leaves what is not finite.
fn overflows(input: &Input<'_>, section: &[u8]) -> bool {
    let mut left = Left {
        values: input.values,
        finite: true,
    };
    let section = Section::read(&mut Reader::new(section), input.shape, input.rng);
    section.and_then(|section| section.decode(&mut left)).is_err() || !left.finite
}

/// Checks that the difference between values and decoded values is finite.
struct Left<'a> {
    values: &'a [f32],
    finite: bool,
}

impl Sink for Left<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let mut pairs = self.values[start..].iter().zip(values);
        self.finite &= pairs.all(|(value, decoded)| (value - decoded).is_finite());
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        for (&index, value) in indices.iter().zip(values) {
            self.dense(index as usize, std::slice::from_ref(value));
        }
    }
}

/// The output of the first slot, to be quantized and coded.
struct Reduced<'a> {
    reduce: Reduce,
    parts: Vec<Part<'a>>,
}

struct Part<'a> {
    support: Option<Vec<u32>>,
    values: Cow<'a, [f32]>,
    shape: Shape,
}

impl<'a> Reduced<'a> {
    fn all(input: &Input<'a>) -> Self {
        let whole = Part {
            support: None,
            values: Cow::Borrowed(input.values),
            shape: input.shape,
        };
        Self {
            reduce: Reduce::Keep,
            parts: vec![whole],
        }
    }

    fn is_finite(&self) -> bool {
        self.parts.iter().all(|part| all_finite(&part.values))
    }

    fn support(threads: usize, values: &[f32], support: Vec<u32>) -> Self {
        Self {
            reduce: Reduce::Support {
                k: support.len() as u32,
            },
            parts: vec![Part::at(threads, values, support)],
        }
    }

    fn plain(reduce: Reduce, values: Vec<f32>, shape: Shape) -> Self {
        let part = Part {
            support: None,
            values: Cow::Owned(values),
            shape,
        };
        Self {
            reduce,
            parts: vec![part],
        }
    }
}

impl Part<'_> {
    fn at(threads: usize, values: &[f32], support: Vec<u32>) -> Self {
        let at = |indices: &[u32]| -> Vec<f32> { indices.iter().map(|&index| values[index as usize]).collect() };
        let (first, second) = support.split_at(support.len() / threads.clamp(1, 2));
        let kept = if support.len() < FEW {
            at(&support)
        } else {
            let (mut kept, second) = both(threads, || at(first), || at(second));
            kept.extend_from_slice(&second);
            kept
        };
        Self {
            shape: Shape::row(kept.len()),
            support: Some(support),
            values: Cow::Owned(kept),
        }
    }
}

fn reduce<'a>(input: &Input<'a>, warm: &mut Option<Vec<f32>>) -> Result<Reduced<'a>, Error> {
    let &Input { values, rng, .. } = input;
    // A tensor of zeros is an empty support, whatever was asked, unless it was to be sent as fp32 FedAvg sends it.
    let plain =
        input.selection == Reduction::All && input.quantize == QuantizeSpec::Exact && input.code == CodeSpec::Pack;
    if !plain && values.iter().all(|value| value.to_bits() == 0) {
        return Ok(Reduced::support(input.threads, values, Vec::new()));
    }
    // So is a tensor that a budget leaves no level.
    if matches!(input.quantize, QuantizeSpec::DeadZone(zone) if input.leading.is_none() && zone.quantizes_to_zero(values))
    {
        return Ok(Reduced::support(input.threads, values, Vec::new()));
    }
    let mut reduced = match input.selection {
        Reduction::All | Reduction::Components => match &input.leading {
            Some(leading) => apart(input, leading)?,
            None => Reduced::all(input),
        },
        Reduction::Largest(k) => Reduced::support(input.threads, values, top_k::top_k(input.threads, values, k)),
        Reduction::LargestOfChunks { density, chunk } => {
            let support = top_k::top_share_of_chunks(values, chunk, density);
            Reduced::support(input.threads, values, support)
        }
        Reduction::Reaching { threshold, least } => {
            let support = threshold::fixed(values, threshold);
            let support = if support.len() < least {
                top_k::top_k(input.threads, values, least)
            } else {
                support
            };
            Reduced::support(input.threads, values, support)
        }
        Reduction::Sampled(k) => Reduced::support(input.threads, values, threshold::sampled(values, k, rng)),
        Reduction::Random { k, scale } => {
            let places = random_k::Places::new(rng, values.len());
            let mut indices = vec![0; k];
            places.fill(0, &mut indices);
            let sent = indices.iter().map(|&index| values[index as usize] * scale).collect();
            Reduced::plain(Reduce::RandomK { k: k as u32 }, sent, Shape::row(k))
        }
        Reduction::Sketch { rows, cols, k } => {
            let mut table = count_sketch::table(values, rows, cols, rng);
            if !input.unbiased {
                let estimates = count_sketch::Estimates::new(&table, rows, cols, rng);
                let scale = estimates.contraction(values, k);
                table.iter_mut().for_each(|sum| *sum *= scale);
            }
            let shape = Shape {
                rows: rows as usize,
                cols,
            };
            let received = received(input, &table, shape, 0)?;
            let threshold = count_sketch::Estimates::new(&received, rows, cols, rng).threshold(values.len(), k);
            let cols = cols as u32;
            Reduced::plain(Reduce::CountSketch { rows, cols, threshold }, table, shape)
        }
        Reduction::Projected { k } => {
            let mut sums = projection::project(values, k, rng);
            if !input.unbiased {
                projection::shrink_all(values.len(), k, &mut sums);
            }
            let shape = Shape::row(sums.len());
            Reduced::plain(Reduce::Projection { k: k as u32 }, sums, shape)
        }
        Reduction::LowRank { rank, k } => factors(input, rank, k, warm)?,
    };
    if let Some(clip) = input.clip {
        for part in reduced.parts.iter_mut().filter(|part| part.support.is_some()) {
            let cut = |value: &mut f32| *value = value.clamp(-clip, clip);
            part.values.to_mut().iter_mut().for_each(cut);
        }
    }
    Ok(reduced)
}

/// What the receiver will decode of part `at`, whose values are `values`.
fn received(input: &Input<'_>, values: &[f32], shape: Shape, at: u64) -> Result<Vec<f32>, Error> {
    let (code, rng) = (Code::Pack, input.rng.part(at));
    let (mut bytes, mut out) = (Vec::new(), vec![0.0; values.len()]);
    input.quantize.method().encode(values, shape, code, rng, &mut bytes);
    let plane = Quantize::of(&input.quantize).plane(&mut Reader::new(&bytes), shape, code, rng)?;
    plane.open()?.read(&mut out)?;
    Ok(out)
}

/// Components, and the remainder of their decoded product.
fn apart<'a>(input: &Input<'_>, leading: &LeadingComponents) -> Result<Reduced<'a>, Error> {
    let &Input { values, shape, .. } = input;
    let rank = leading.rank;
    let part = |values: Vec<f32>, rows, cols| Part {
        support: None,
        values: Cow::Owned(values),
        shape: Shape { rows, cols },
    };
    let halves = [
        part(leading.p.clone(), shape.rows, rank),
        part(leading.q.clone(), rank, shape.cols),
    ];
    let p = received(input, &halves[0].values, halves[0].shape, 0)?;
    let q = received(input, &halves[1].values, halves[1].shape, 1)?;
    let left = LeadingComponents { rank, p, q }.left(values, shape);
    let mut parts = Vec::from(halves);
    parts.push(part(left, shape.rows, shape.cols));
    Ok(Reduced {
        reduce: Reduce::Components { rank: rank as u32 },
        parts,
    })
}

/// Both factors, and the largest values of the remainder of their decoded product.
fn factors<'a>(input: &Input<'_>, rank: usize, k: usize, warm: &mut Option<Vec<f32>>) -> Result<Reduced<'a>, Error> {
    let &Input { values, shape, .. } = input;
    let low_rank::Factors { p, q } = low_rank::factors(values, shape, rank, warm.as_deref(), input.rng);
    *warm = Some(q.clone());
    let part = |values, rows, cols| Part {
        support: None,
        values: Cow::Owned(values),
        shape: Shape { rows, cols },
    };
    let mut reduced = Reduced {
        reduce: Reduce::LowRank {
            rank: rank as u32,
            k: 0,
        },
        parts: vec![part(p, shape.rows, rank), part(q, rank, shape.cols)],
    };
    if k > 0 {
        let [p, q] = [&reduced.parts[0], &reduced.parts[1]];
        let p = received(input, &p.values, p.shape, 0)?;
        let q = received(input, &q.values, q.shape, 1)?;
        let mut left = vec![0.0; values.len()];
        low_rank::multiply(&p, &q, rank, shape.cols, 0, &mut left);
        left.iter_mut()
            .zip(values)
            .for_each(|(left, value)| *left = value - *left);
        let support = top_k::top_k(input.threads, &left, k);
        reduced.reduce = Reduce::LowRank {
            rank: rank as u32,
            k: support.len() as u32,
        };
        reduced.parts.push(Part::at(input.threads, &left, support));
    }
    Ok(reduced)
}

fn write(input: &Input<'_>, reduced: &Reduced<'_>, code: Code) -> Encoded {
    let recipe = Recipe {
        reduce: reduced.reduce,
        quantize: Quantize::of(&input.quantize),
        code,
    };
    let mut out = Vec::new();
    recipe.write(&mut Writer::new(&mut out));
    let mut stages = Stages {
        fp32: input.values.len() as u64 * 4,
        ..Stages::default()
    };
    let parts = reduced.parts.iter().filter(|part| !part.values.is_empty());
    for (at, part) in parts.enumerate() {
        let rng = input.rng.part(at as u64);
        let values = |out: &mut Vec<u8>| input.quantize.method().encode(&part.values, part.shape, code, rng, out);
        let size = if let Some(support) = &part.support {
            stages.reduced += support.len() as u64 * 4;
            stages.quantized += support.len() as u64 * 4;
            stages.entropy_bound += support_bound(input.values.len(), support.len()) / 8.0;
            let threads = if support.len() < FEW { 1 } else { input.threads };
            let mut plane = Vec::new();
            let indices = || encode_indices(support, input.shape, code, &mut out);
            let ((), size) = both(threads, indices, || values(&mut plane));
            out.append(&mut plane);
            size
        } else {
            values(&mut out)
        };
        stages.reduced += part.values.len() as u64 * 4;
        stages.quantized += size.plain;
        stages.entropy_bound += size.bound;
    }
    stages.coded = out.len() as u64;
    Encoded {
        minor: recipe.minor(),
        bytes: out,
        stages,
    }
}
