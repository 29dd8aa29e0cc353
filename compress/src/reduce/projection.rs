//! Random signed sums of blocks of values (Johnson and Lindenstrauss 1984; signs by Achlioptas 2003, theorem 1.1).
//!
//! ```text
//! y = S x / sqrt(k)        x' = S^T y / sqrt(k)        S: [k, n] of +-1 from the frame's seed
//! ```
//!
//! for each block of 4096 values with `k` sums; a short last block of `n` has `ceil(k n / 4096)`. Unbiased with `omega =
//! (n - 1) / k`. It is not contractive; error feedback wants `y` times [`shrink`] `= 1 / (1 + omega)`, which makes it so with
//! `delta = 1 / (1 + omega)`, and is invisible to the decoder. Both directions cost `k` operations a value.
//!
//! Signs: with `d = KeyedRng::new(key.bits(block), block)` and `w = d.bits(64 j + 8 g + u)`, bits of the eight words `u` of sum j
//! and group g belong to values `512 g ..`: of value `512 g + 16 s + l`, bit `31 - s` of the l-th half word, low halves first.

use crate::density::{Density, DensityTable};
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::layout::Shape;
use crate::reduce::form::{Form, Number, Numbers, Part, Reduction, Width};
use crate::reduce::keyed::keyed;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::planes::{Planes, check};
use crate::rng::KeyedRng;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::sink::Sink;

// Values projected at a time.
const BLOCK: usize = 4096;
// Most sums of a block, a density of 0.25: coding takes as many operations per value (docs/reference/compressors.md).
const MOST: usize = BLOCK / 4;
// Lanes of signs, which move up by one bit for every row of a group.
const LANES: usize = 16;
// Values that the bits of one set of lanes serve.
const GROUP: usize = 32 * LANES;
const GROUPS: usize = BLOCK / GROUP;
// The sign bit of an `f32`.
const SIGN: u32 = 1 << 31;
// 2^64: sums of a block of values beyond it might overflow, and are made of values divided by it.
const HUGE: f32 = 18_446_744_073_709_551_616.0;

/// Random signed sums of blocks: a density, the share of sums to values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Projection {
    /// Sums for each value; more than 0.25 counts as that.
    pub density: Density,
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "projection",
        about: "Random signed sums of blocks of values.",
        examples: &["{ projection = 0.1 }"],
        leaves_out: false,
    },
    form: &Form {
        tag: 3,
        second: Some(2),
        numbers: &[Number::new("k", Width::Varint, |k, _, _| {
            (1..=MOST).contains(&(k as usize))
        })],
        words: |[k, ..], _| format!("projection to {k}"),
        parts: |[k, ..], shape| vec![Part::plain(1, sums(shape.len(), k as usize))],
        decode,
    },
    stream: 4,
};

impl Reducer for Projection {
    fn choose(&self, _: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        let k = self.density.count(BLOCK).min(MOST);
        ReducerChoice::new(Sends::Other, move |tensor, _| {
            let mut sums = project(tensor.values, k, tensor.rng);
            if !tensor.unbiased {
                shrink_all(tensor.values.len(), k, &mut sums);
            }
            let shape = Shape::row(sums.len());
            Ok(Reduction::plain(METHOD.form, [k as u32, 0, 0, 0], sums, shape))
        })
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        let k = self.density.count(BLOCK).min(MOST);
        Some(vec![Part::plain(1, sums(shape.len(), k))])
    }
}

fn decode([k, ..]: Numbers, planes: &Planes<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let k = k as usize;
    let len = planes.shape.len();
    let mut open = planes.part(0)?.values.open()?;
    let mut out = vec![0.0; BLOCK.min(len)];
    let mut sums = vec![0.0; block_sums(out.len(), k)];
    for (at, start) in (0..len).step_by(BLOCK).enumerate() {
        let block = &mut out[..BLOCK.min(len - start)];
        let sums = &mut sums[..block_sums(block.len(), k)];
        open.read(sums)?;
        check(sums)?;
        unproject(sums, at, planes.rng, block);
        check(block)?;
        sink.dense(start, block);
    }
    open.finish()
}

short_forms!(Projection);

impl Short for Projection {
    const FORMS: &'static str = "a density above 0 and at most 0.25";
    type Table = DensityTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        if number > 0.25 {
            return Err(Error::Usage(format!(
                "a projection takes as many operations a value as a block has sums: its density is at most 0.25, not {number}"
            )));
        }
        Density::new(number).map(|density| Self { density })
    }

    fn from_table(DensityTable { density }: DensityTable) -> Result<Self, Error> {
        Self::from_number(density.into())
    }

    fn parts(&self) -> Result<f64, DensityTable> {
        Ok(self.density.into())
    }
}

/// Sums of a block of `len` values if a whole one has `k`.
fn block_sums(len: usize, k: usize) -> usize {
    (k * len).div_ceil(BLOCK).max(1)
}

/// Multiplies the sums of each block of `len` values by [`shrink`].
fn shrink_all(len: usize, k: usize, mut sums: &mut [f32]) {
    for start in (0..len).step_by(BLOCK) {
        let block = BLOCK.min(len - start);
        let (part, rest) = sums.split_at_mut(block_sums(block, k));
        part.iter_mut().for_each(|sum| *sum *= shrink(block, k));
        sums = rest;
    }
}

fn sums(len: usize, k: usize) -> usize {
    let rest = len % BLOCK;
    let last = if rest == 0 { 0 } else { block_sums(rest, k) };
    len / BLOCK * block_sums(BLOCK, k) + last
}

/// What error feedback multiplies the sums of a block of `len` values by.
fn shrink(len: usize, k: usize) -> f32 {
    let sums = block_sums(len, k) as f64;
    (sums / (sums + len as f64 - 1.0)) as f32
}

/// The sums of each block of `values`, one block after another: `[sums(values.len(), k)]`.
fn project(values: &[f32], k: usize, rng: KeyedRng) -> Vec<f32> {
    let mut out = Vec::with_capacity(sums(values.len(), k));
    let mut padded = vec![0.0; BLOCK];
    for (index, block) in values.chunks(BLOCK).enumerate() {
        let signs = Signs::new(rng, index);
        let sums = block_sums(block.len(), k);
        padded[..block.len()].copy_from_slice(block);
        let mut scale = 1.0 / (sums as f64).sqrt();
        if block.iter().any(|value| value.abs() > HUGE) {
            padded.iter_mut().for_each(|value| *value /= HUGE);
            scale *= f64::from(HUGE);
        }
        padded[block.len()..].fill(0.0);
        let padded = &padded[..block.len().next_multiple_of(GROUP)];
        out.extend((0..sums).map(|j| {
            let sum = padded
                .chunks_exact(GROUP)
                .enumerate()
                .map(|(group, values)| f64::from(signed_sum(values, signs.lanes(j, group))))
                .sum::<f64>();
            (sum * scale).clamp(f32::MIN.into(), f32::MAX.into()) as f32
        }));
    }
    out
}

/// The values of block `index` from its sums. Shapes: `sums: [block_sums(out.len(), k)]`, `out: [4096]`, or the length of the
/// last block. Not finite where the sums of finite numbers are not.
fn unproject(sums: &[f32], index: usize, rng: KeyedRng, out: &mut [f32]) {
    let signs = Signs::new(rng, index);
    let scale = 1.0 / (sums.len() as f32).sqrt();
    let mut group_out = [0.0; GROUP];
    for (group, out) in out.chunks_mut(GROUP).enumerate() {
        group_out.fill(0.0);
        for (j, &sum) in sums.iter().enumerate() {
            add_signed(sum, signs.lanes(j, group), &mut group_out);
        }
        for (out, sum) in out.iter_mut().zip(group_out) {
            *out = sum * scale;
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Signs(KeyedRng);

impl Signs {
    fn new(rng: KeyedRng, index: usize) -> Self {
        Self(KeyedRng::new(keyed(rng, METHOD.stream).bits(index), index))
    }

    /// Those of sum `j` for the values of `group`.
    #[inline(always)]
    fn lanes(self, j: usize, group: usize) -> [u32; LANES] {
        let mut lanes = [0; LANES];
        for (at, pair) in lanes.chunks_exact_mut(2).enumerate() {
            let bits = self.0.bits((j * GROUPS + group) * LANES / 2 + at);
            pair[0] = bits as u32;
            pair[1] = (bits >> 32) as u32;
        }
        lanes
    }
}

#[inline(never)]
fn signed_sum(values: &[f32], mut lanes: [u32; LANES]) -> f32 {
    let mut sums = [0.0; LANES];
    for row in values.chunks_exact(LANES) {
        for ((sum, value), lane) in sums.iter_mut().zip(row).zip(&mut lanes) {
            *sum += f32::from_bits(value.to_bits() ^ (*lane & SIGN));
            *lane <<= 1;
        }
    }
    sums.iter().sum()
}

#[inline(never)]
fn add_signed(sum: f32, mut lanes: [u32; LANES], out: &mut [f32; GROUP]) {
    for row in out.chunks_exact_mut(LANES) {
        for (out, lane) in row.iter_mut().zip(&mut lanes) {
            *out += f32::from_bits(sum.to_bits() ^ (*lane & SIGN));
            *lane <<= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(sums: &[f32], len: usize, k: usize, rng: KeyedRng) -> Vec<f32> {
        let mut out = vec![0.0; len];
        let mut rest = sums;
        for (index, out) in out.chunks_mut(BLOCK).enumerate() {
            let (block, after) = rest.split_at(block_sums(out.len(), k));
            unproject(block, index, rng, out);
            rest = after;
        }
        assert!(rest.is_empty());
        out
    }

    /// Bit by bit, as the module says it.
    fn sign(rng: KeyedRng, block: usize, j: usize, i: usize) -> f64 {
        let rng = KeyedRng::new(keyed(rng, METHOD.stream).bits(block), block);
        let (g, s, l) = (i / 512, i % 512 / 16, i % 16);
        let word = rng.bits(64 * j + 8 * g + l / 2);
        let half = if l % 2 == 0 { word as u32 } else { (word >> 32) as u32 };
        if half >> (31 - s) & 1 == 1 { -1.0 } else { 1.0 }
    }

    #[test]
    fn agrees_with_the_formula() {
        let rng = KeyedRng::new(8, 1);
        let (len, k) = (BLOCK + 700, 30);
        let values: Vec<f32> = (0..len).map(|i| rng.unit(i) - 0.4).collect();
        let sums = project(&values, k, rng);
        assert_eq!(sums.len(), 30 + 6);
        let out = decode(&sums, len, k, rng);
        for (block, j) in [(0, 0), (0, 29), (1, 5)] {
            let part = &values[block * BLOCK..len.min((block + 1) * BLOCK)];
            let sum: f64 = (0..part.len())
                .map(|i| sign(rng, block, j, i) * f64::from(part[i]))
                .sum();
            let expected = sum / (block_sums(part.len(), k) as f64).sqrt();
            assert!((expected - f64::from(sums[block * k + j])).abs() < 1e-4);
        }
        for i in [0, 4095, 4096, len - 1] {
            let (block, at) = (i / BLOCK, i % BLOCK);
            let sums = if block == 0 { &sums[..k] } else { &sums[k..] };
            let sum: f64 = (0..sums.len())
                .map(|j| sign(rng, block, j, at) * f64::from(sums[j]))
                .sum();
            let expected = sum / (sums.len() as f64).sqrt();
            assert!((expected - f64::from(out[i])).abs() < 1e-4);
        }
    }

    #[test]
    fn sums_add_up() {
        let rng = KeyedRng::new(8, 2);
        let x: Vec<f32> = (0..5000).map(|i| (rng.bits(i) % 64) as f32).collect();
        let y: Vec<f32> = x.iter().map(|x| 17.0 - 3.0 * x).collect();
        let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        // Sixteen sums a block: a scale of 1/4 is exact; the last block of 904 has four.
        let of = |values: &[f32]| project(values, 16, rng);
        let added: Vec<f32> = of(&x).iter().zip(of(&y)).map(|(x, y)| x + y).collect();
        assert_eq!(of(&sum), added);
    }

    #[test]
    fn no_bias_an_error_of_omega_and_shrunk_less_than_the_norm() {
        const DRAWS: u64 = 4000;
        let (n, k) = (100, 400);
        let values: Vec<f32> = (0..n).map(|i| (i as f32 - 31.3) / 17.0).collect();
        let energy: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        let sums = block_sums(n, k) as f64;
        let (mut mean, mut error, mut shrunk) = (vec![0.0; n], 0.0, 0.0);
        for seed in 0..DRAWS {
            let rng = KeyedRng::new(seed, 0);
            let out = decode(&project(&values, k, rng), n, k, rng);
            for ((mean, &value), out) in mean.iter_mut().zip(&values).zip(out) {
                *mean += f64::from(out) / DRAWS as f64;
                error += f64::from(out - value).powi(2) / DRAWS as f64;
                shrunk += f64::from(out * shrink(n, k) - value).powi(2) / DRAWS as f64;
            }
        }
        for (mean, &value) in mean.iter().zip(&values) {
            let deviation = ((energy - f64::from(value).powi(2)) / sums).sqrt();
            assert!((mean - f64::from(value)).abs() <= 5.0 * deviation / (DRAWS as f64).sqrt());
        }
        let omega = (n as f64 - 1.0) / sums;
        assert!((error / (omega * energy) - 1.0).abs() < 0.05, "{error}");
        let delta = 1.0 / (1.0 + omega);
        assert!((shrunk / ((1.0 - delta) * energy) - 1.0).abs() < 0.05, "{shrunk}");
    }

    #[test]
    fn edges() {
        let rng = KeyedRng::new(8, 3);
        assert!(project(&[], 5, rng).is_empty());
        assert_eq!((sums(0, 5), sums(1, 5), sums(4097, 5), sums(8192, 0)), (0, 1, 6, 2));
        assert_eq!(decode(&project(&[-2.5], 1, rng), 1, 1, rng), [-2.5]);
        assert!(project(&[f32::MAX; 5000], 9, rng).iter().all(|y| !y.is_nan()));
        assert_eq!(shrink(1, 9), 1.0);
        let zeros = decode(&project(&[0.0; 600], 9, rng), 600, 9, rng);
        assert!(zeros.iter().all(|&value| value == 0.0));
    }
}
