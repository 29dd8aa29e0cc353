//! A table of signed sums, from which the largest values can be read back (Charikar, Chen and Farach-Colton 2002, section
//! 3; as in FetchSGD, Rothchild et al. 2020, algorithm 1).
//!
//! ```text
//! table[r][h_r(i)] += s_r(i) * v[i]            h_r(i) in 0..cols, s_r(i) = +-1, from the frame's seed
//! estimate[i] = median over r of s_r(i) * table[r][h_r(i)]
//! ```
//!
//! Linear in the values. One row is unbiased with `omega = (n - 1) / cols`. The median of an odd number of rows is off by
//! more than `2 |v| / sqrt(cols)` (Euclidean norm) with a probability that falls exponentially with their number, so it
//! tells few large values from many small ones. Neither is contractive: only estimates that reach a threshold are
//! decoded.
//!
//! Hashes: with `x = KeyedRng::new(key.bits(r), r).bits(i)`, the column is `x * cols >> 64` and the sign is minus if x is odd.

use serde::{Deserialize, Serialize};

use crate::density::Density;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::layout::Shape;
use crate::reduce::form::{Form, Number, Numbers, Part, Reduction, Width};
use crate::reduce::keep;
use crate::reduce::keyed::keyed;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::planes::Planes;
use crate::rng::KeyedRng;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::sink::Sink;

// Most rows of a sketch.
const MAX_ROWS: u32 = 15;
// Estimates made at a time.
const BLOCK: usize = 256;
// The sign bit of an `f32`: a hash flips it.
const SIGN: u32 = 1 << 31;

/// Signed sums under several hashes: `0.1` or `{ density = 0.1, rows = 5, top = 0.01 }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CountSketch {
    /// Independent hashes, odd, 1 to 15; by default 5.
    pub rows: u32,
    /// Size of the table, as a share of the values.
    pub density: Density,
    /// Share of values decoded, the largest estimates; by default a tenth of `density`.
    pub top: Density,
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "count_sketch",
        about: "A table of signed sums under several hashes, from which the largest values are read back.",
        examples: &[
            "{ count_sketch = 0.1 }",
            "{ count_sketch = { density = 0.2, rows = 3, top = 0.2 } }",
        ],
        leaves_out: true,
    },
    // The table. A value is the median of its estimates if that reaches the threshold in magnitude, else zero.
    form: &Form {
        tag: 3,
        second: Some(1),
        numbers: &[
            Number::new("rows of the sketch", Width::Byte, |rows, _, _| is_odd_and_few(rows)),
            Number::new("columns of the sketch", Width::Varint, |cols, [rows, ..], shape| {
                (1..=shape.len() / rows as usize).contains(&(cols as usize))
            }),
            Number::new("threshold", Width::Word, |bits, _, _| {
                f32::from_bits(bits).is_finite() && f32::from_bits(bits).is_sign_positive()
            }),
        ],
        words: |[rows, cols, ..], _| format!("count sketch {rows} x {cols}"),
        parts: |[rows, cols, ..], _| vec![Part::plain(rows as usize, cols as usize)],
        decode,
    },
    stream: 3,
};

impl Reducer for CountSketch {
    fn choose(
        &self,
        TensorValues { values, .. }: &TensorValues<'_>,
        _: RoundContext,
        _: &mut RuleState,
    ) -> ReducerChoice {
        let rows = self.rows;
        let k = self.top.count(values.len());
        let cols = self.density.count(values.len()) / rows as usize;
        if cols == 0 {
            return keep::all();
        }
        ReducerChoice::new(Sends::Other, move |tensor, _| {
            let mut table = table(tensor.values, rows, cols, tensor.rng);
            if !tensor.unbiased {
                let scale = Estimates::new(&table, rows, cols, tensor.rng).contraction(tensor.values, k);
                table.iter_mut().for_each(|sum| *sum *= scale);
            }
            let shape = Shape {
                rows: rows as usize,
                cols,
            };
            let received = tensor.received(&table, shape, 0)?;
            let estimates = Estimates::new(&received, rows, cols, tensor.rng);
            let threshold = estimates.threshold(tensor.values.len(), k);
            Ok(Reduction::plain(
                METHOD.form,
                [rows, cols as u32, threshold.to_bits(), 0],
                table,
                shape,
            ))
        })
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        Some(vec![match self.density.count(shape.len()) / self.rows as usize {
            0 => Part::plain(shape.rows, shape.cols),
            cols => Part::plain(self.rows as usize, cols),
        }])
    }
}

fn decode([rows, cols, threshold, _]: Numbers, planes: &Planes<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let table = planes.part(0)?.whole()?;
    let threshold = f32::from_bits(threshold);
    let estimates = Estimates::new(&table, rows, cols as usize, planes.rng);
    planes.fill(sink, |start, block| {
        estimates.fill(start, block);
        block
            .iter_mut()
            .for_each(|value: &mut f32| *value = if value.abs() >= threshold { *value } else { 0.0 });
        Ok(())
    })
}

fn is_odd_and_few(rows: u32) -> bool {
    rows % 2 == 1 && rows <= MAX_ROWS
}

short_forms!(CountSketch);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    density: Density,
    rows: Option<u32>,
    top: Option<Density>,
}

impl Short for CountSketch {
    const FORMS: &'static str = "a density above 0 and at most 1, or { density = .., rows = .., top = .. }";
    type Table = Table;

    fn from_number(number: f64) -> Result<Self, Error> {
        Self::from_table(Table {
            density: Density::new(number)?,
            rows: None,
            top: None,
        })
    }

    fn from_table(Table { density, rows, top }: Table) -> Result<Self, Error> {
        let rows = rows.unwrap_or(5);
        if !is_odd_and_few(rows) {
            return Err(Error::Usage(format!(
                "a sketch has an odd number of rows, 1 to 15, not {rows}"
            )));
        }
        let top = match top {
            Some(top) => top,
            None => Density::new(f64::from(density) / 10.0)?,
        };
        Ok(Self { rows, density, top })
    }

    fn parts(&self) -> Result<f64, Table> {
        let short = Self::from_number(self.density.into());
        if short.as_ref() == Ok(self) {
            return Ok(self.density.into());
        }
        Err(Table {
            density: self.density,
            rows: Some(self.rows),
            top: Some(self.top),
        })
    }
}

/// The hashes of one row.
#[derive(Debug, Clone, Copy)]
struct Hash {
    rng: KeyedRng,
    cols: u64,
}

impl Hash {
    fn new(rng: KeyedRng, row: usize, cols: usize) -> Self {
        Self {
            rng: KeyedRng::new(keyed(rng, METHOD.stream).bits(row), row),
            cols: cols as u64,
        }
    }

    /// Column and sign bit of value `i`.
    #[inline(always)]
    fn at(self, i: usize) -> (usize, u32) {
        let bits = self.rng.bits(i);
        let col = (u128::from(bits) * u128::from(self.cols)) >> 64;
        (col as usize, (bits as u32) << 31)
    }
}

/// The sketch of `values`: `[rows, cols]`, row-major. Sums are made in f64, by ascending index; what is beyond the range of
/// f32 is cut to it.
fn table(values: &[f32], rows: u32, cols: usize, rng: KeyedRng) -> Vec<f32> {
    let mut table = Vec::with_capacity(rows as usize * cols);
    for row in 0..rows as usize {
        let hash = Hash::new(rng, row, cols);
        table.extend(sums(values, cols, |i| hash.at(i)));
    }
    table
}

#[inline(never)]
fn sums(values: &[f32], cols: usize, hash: impl Fn(usize) -> (usize, u32)) -> impl Iterator<Item = f32> {
    let mut sums = vec![0.0; cols];
    for (i, &value) in values.iter().enumerate() {
        let (col, sign) = hash(i);
        sums[col] += f64::from(flip(value, sign));
    }
    sums.into_iter()
        .map(|sum: f64| sum.clamp(f32::MIN.into(), f32::MAX.into()) as f32)
}

#[inline(always)]
fn flip(value: f32, sign: u32) -> f32 {
    f32::from_bits(value.to_bits() ^ sign)
}

/// The estimates of a sketched vector, in any portions.
#[derive(Debug, Clone)]
struct Estimates<'a> {
    /// `[rows, cols]`, row-major, finite.
    table: &'a [f32],
    cols: usize,
    hashes: Vec<Hash>,
}

impl<'a> Estimates<'a> {
    /// Of the sketch `table`, made with the same `cols` and `draws`. Shapes: `table: [rows, cols]`, finite, rows odd and at
    /// most [`MAX_ROWS`].
    fn new(table: &'a [f32], rows: u32, cols: usize, rng: KeyedRng) -> Self {
        debug_assert!(rows % 2 == 1 && table.len() == rows as usize * cols);
        let hashes = (0..rows as usize).map(|row| Hash::new(rng, row, cols)).collect();
        Self { table, cols, hashes }
    }

    /// Estimates of values `start..start + out.len()`.
    fn fill(&self, start: usize, out: &mut [f32]) {
        let mut rows = vec![[0.0; BLOCK]; self.hashes.len()];
        for (at, out) in out.chunks_mut(BLOCK).enumerate() {
            let start = start + at * BLOCK;
            for ((estimates, row), hash) in rows.iter_mut().zip(self.table.chunks(self.cols)).zip(&self.hashes) {
                look_up(row, start, |i| hash.at(i), &mut estimates[..out.len()]);
            }
            medians(&mut rows);
            out.copy_from_slice(&rows[rows.len() / 2][..out.len()]);
        }
    }

    /// The factor, 0 to 1, by which the `k` largest estimates come nearest to `values`. With it the error is never larger
    /// than the values: without it a crowded table makes the residual of error feedback grow without bound.
    fn contraction(&self, values: &[f32], k: usize) -> f32 {
        let threshold = self.threshold(values.len(), k);
        let mut estimates = [0.0; BLOCK];
        let mut product = 0.0;
        let mut square = 0.0;
        for (at, values) in values.chunks(BLOCK).enumerate() {
            let estimates = &mut estimates[..values.len()];
            self.fill(at * BLOCK, estimates);
            for (estimate, value) in estimates.iter().zip(values).filter(|(e, _)| e.abs() >= threshold) {
                product += f64::from(*estimate) * f64::from(*value);
                square += f64::from(*estimate) * f64::from(*estimate);
            }
        }
        if square > 0.0 {
            (product / square).clamp(0.0, 1.0) as f32
        } else {
            0.0
        }
    }

    /// The magnitude that the `k` largest of `n` estimates reach, above zero. More than `k` do if some are equal; fewer if
    /// there are not so many that are not zero.
    ///
    /// Encoders take it from the table as the receiver will decode it.
    fn threshold(&self, n: usize, k: usize) -> f32 {
        let mut estimates = vec![0.0; n];
        self.fill(0, &mut estimates);
        let mut magnitudes: Vec<u32> = estimates.iter().map(|value| value.to_bits() & !SIGN).collect();
        if magnitudes.is_empty() {
            return f32::MAX;
        }
        let rank = k.clamp(1, n) - 1;
        let (_, &mut magnitude, _) = magnitudes.select_nth_unstable_by(rank, |a, b| b.cmp(a));
        f32::from_bits(magnitude.max(1))
    }
}

#[inline(never)]
fn look_up(row: &[f32], start: usize, hash: impl Fn(usize) -> (usize, u32), out: &mut [f32]) {
    for (i, out) in (start..).zip(out) {
        let (col, sign) = hash(i);
        *out = flip(row[col], sign);
    }
}

/// Leaves in the middle one of `rows`, an odd number, the median of each column; a zero is positive.
#[inline(never)]
fn medians(rows: &mut [[f32; BLOCK]]) {
    let middle = rows.len() / 2;
    for low in 0..=middle {
        let (smallest, rest) = rows[low..].split_at_mut(1);
        for other in rest {
            for (a, b) in smallest[0].iter_mut().zip(other) {
                // Not min and max, which leave open which of two zeros they take.
                let swap = *b < *a;
                (*a, *b) = if swap { (*b, *a) } else { (*a, *b) };
            }
        }
    }
    rows[middle].iter_mut().for_each(|value| *value += 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 3000;

    fn estimates(table: &[f32], rows: u32, rng: KeyedRng, n: usize) -> Vec<f32> {
        let mut out = vec![0.0; n];
        let estimates = Estimates::new(table, rows, table.len() / rows as usize, rng);
        for (at, part) in out.chunks_mut(300).enumerate() {
            estimates.fill(at * 300, part);
        }
        out
    }

    #[test]
    fn a_worked_example() {
        let x = [10.0, 0.0, 0.0, -7.0, 0.0, 1.0, 0.0, 0.0];
        let even = |x: usize| if x.is_multiple_of(2) { 0 } else { SIGN };
        let hash = |r: usize| {
            let (a, b, c, d) = ([3, 7, 12][r], [5, 2, 9][r], [11, 4, 6][r], [1, 8, 3][r]);
            move |i: usize| ((a * i + b) % 31 % 5, even((c * i + d) % 31))
        };
        let table: Vec<Vec<f32>> = (0..3).map(|r| sums(&x, 5, hash(r)).collect()).collect();
        assert_eq!(table[0], [-11.0, 0.0, 0.0, 0.0, 7.0]);
        assert_eq!(table[1], [0.0, 1.0, 10.0, -7.0, 0.0]);
        assert_eq!(table[2], [0.0, 0.0, 1.0, 0.0, -3.0]);
        let mut rows = [[0.0; BLOCK]; 3];
        for r in 0..3 {
            look_up(&table[r], 0, hash(r), &mut rows[r][..8]);
        }
        medians(&mut rows);
        assert_eq!(rows[1][..8], x);
    }

    #[test]
    fn medians_agree_with_sorting() {
        let rng = KeyedRng::new(5, 5);
        for count in (1..=MAX_ROWS as usize).step_by(2) {
            let mut rows: Vec<[f32; BLOCK]> = (0..count)
                .map(|r| std::array::from_fn(|i| (rng.unit(r * BLOCK + i) * 9.0).round() - 4.0))
                .collect();
            let expected: Vec<f32> = (0..BLOCK)
                .map(|i| {
                    let mut column: Vec<f32> = rows.iter().map(|row| row[i]).collect();
                    column.sort_by(f32::total_cmp);
                    column[count / 2]
                })
                .collect();
            medians(&mut rows);
            assert_eq!(rows[count / 2].as_slice(), expected);
        }
    }

    #[test]
    fn sketches_add_up() {
        let rng = KeyedRng::new(1, 2);
        let x: Vec<f32> = (0..N).map(|i| (rng.bits(i) % 200) as f32 - 100.0).collect();
        let y: Vec<f32> = (0..N).map(|i| (rng.bits(i + N) % 200) as f32 - 100.0).collect();
        let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let of = |values: &[f32]| table(values, 5, 97, rng);
        let added: Vec<f32> = of(&x).iter().zip(of(&y)).map(|(x, y)| x + y).collect();
        assert_eq!(of(&sum), added);
    }

    #[test]
    fn few_large_values_come_back_exactly() {
        let mut recovered = 0;
        for seed in 0..50 {
            let rng = KeyedRng::new(seed, 0);
            let mut values = vec![0.0; N];
            (0..10).for_each(|i| {
                values[rng.bits(i) as usize % N] = (i as f32 + 3.0) * if i % 2 == 0 { -1.0 } else { 1.0 }
            });
            let table = table(&values, 7, 400, rng);
            let out = estimates(&table, 7, rng, N);
            let nonzero = values.iter().filter(|&&v| v != 0.0).count();
            let threshold = Estimates::new(&table, 7, 400, rng).threshold(N, nonzero);
            let kept: Vec<f32> = out
                .iter()
                .map(|&v| if v.abs() >= threshold { v } else { 0.0 })
                .collect();
            recovered += u32::from(kept == values);
        }
        assert!(recovered >= 45, "{recovered}");
    }

    #[test]
    fn one_row_has_no_bias_and_an_error_of_omega() {
        const DRAWS: u64 = 4000;
        let values: Vec<f32> = (0..40).map(|i| (i as f32 - 11.3) / 7.0).collect();
        let energy: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        let (cols, mut error) = (8, 0.0);
        let mut mean = [0.0; 40];
        for seed in 0..DRAWS {
            let rng = KeyedRng::new(seed, 3);
            let out = estimates(&table(&values, 1, cols, rng), 1, rng, 40);
            for ((mean, value), out) in mean.iter_mut().zip(&values).zip(out) {
                *mean += f64::from(out) / DRAWS as f64;
                error += f64::from(out - value).powi(2) / DRAWS as f64;
            }
        }
        for (mean, &value) in mean.iter().zip(&values) {
            let deviation = ((energy - f64::from(value).powi(2)) / cols as f64).sqrt();
            assert!((mean - f64::from(value)).abs() <= 5.0 * deviation / (DRAWS as f64).sqrt());
        }
        let omega = 39.0 / cols as f64;
        assert!((error / (omega * energy) - 1.0).abs() < 0.05);
    }

    #[test]
    fn edges() {
        let rng = KeyedRng::new(1, 1);
        assert_eq!(table(&[], 3, 4, rng), [0.0; 12]);
        let zeros = [0.0; 9];
        let sketch = table(&zeros, 3, 2, rng);
        assert!(estimates(&sketch, 3, rng, 9).iter().all(|value| value.to_bits() == 0));
        assert!(Estimates::new(&sketch, 3, 2, rng).threshold(9, 4) > 0.0);
        assert!(table(&[f32::MAX; 50], 1, 1, rng).iter().all(|value| value.is_finite()));
        assert_eq!(table(&[1.5], 1, 1, rng)[0].abs(), 1.5);
    }
}
