//! A matrix as the product of two thin ones (PowerSGD, Vogels, Karimireddy and Jaggi 2019, algorithm 1).
//!
//! ```text
//! P = orth(M Q')        Q = M^T P        M' = P Q^T        M: [rows, cols], P: [rows, rank], Q: [cols, rank]
//! ```
//!
//! One step of subspace iteration from `Q'`, the Q of the frame before (a warm start) or Gaussians. Whatever `Q'` is,
//! M' is the projection of M on the columns of P: `|M - M'|^2 = |M|^2 - |P^T M|^2`, not below what the best matrix of
//! that rank leaves, and equal to it once warm starts have converged. `delta` is the share `|P^T M|^2 / |M|^2`: `rank /
//! min(rows, cols)` if all singular values are equal, and near one if few stand out.
//!
//! Q is stored transposed, `[rank, cols]`, so that every row of M' is a sum of `rank` rows of it.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use crate::density::Density;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::layout::Shape;
use crate::math;
use crate::quantize::numbers::sum_of_squares;
use crate::reduce::form::{Form, K, Number, Numbers, Part, ReducedPart, Reduction, Width};
use crate::reduce::keep;
use crate::reduce::keyed::keyed;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::planes::Planes;
use crate::reduce::products::{multiply, remainder};
use crate::reduce::spectrum::leading_squares;
use crate::reduce::top_k::top_k;
use crate::rng::KeyedRng;
use crate::rules::entropy_rank::Matrix;
use crate::rules::rank::RankSpec;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::spectrum::MAX_RANK;
use crate::simd::vectorized;
use crate::sink::Sink;

// A column shorter than this share of the longest is of rounding errors alone.
const DEPENDENT: f64 = 1e-12;
// Independent sums, so that the compiler vectorizes.
const LANES: usize = 8;
// Rows of the matrix that are added to the sums at once.
const ROWS: usize = 4;

/// Two factors: `4` or `{ rank = 4, remainder = 0.001 }`.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRank {
    /// Columns of each factor, or a rule that chooses them. Where the factors hold no fewer values than the tensor, it is
    /// sent whole.
    pub rank: RankSpec,
    /// Share of values of what the factors leave that is sent too, the largest.
    pub remainder: Option<Density>,
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "low_rank",
        about: "Two factors of a matrix, and perhaps the largest values of what they leave.",
        examples: &[
            "{ low_rank = 2 }",
            "{ low_rank = { rank = 1, remainder = 0.05 } }",
            "{ low_rank = { rank = { by = 'entropy', most = 4, window = 2 } } }",
        ],
        leaves_out: false,
    },
    // The factors, and a sparse remainder.
    form: &Form {
        tag: 2,
        second: None,
        numbers: &[RANK, K],
        words: |[rank, k, ..], len| match k {
            0 => format!("low rank {rank}"),
            _ => format!("low rank {rank} and support {k} of {len}"),
        },
        parts: |[rank, k, ..], Shape { rows, cols }| {
            let rank = rank as usize;
            vec![
                Part::plain(rows, rank),
                Part::plain(rank, cols),
                Part::indexed(k as usize),
            ]
        },
        decode,
    },
    stream: 2,
};

// Columns of each factor, of which the factors hold fewer numbers than the matrix.
pub(crate) const RANK: Number = Number::new("rank", Width::Varint, |rank, _, shape| {
    rank <= MAX_RANK && pays(shape, rank as usize)
});

impl Reducer for LowRank {
    fn choose(&self, tensor: &TensorValues<'_>, context: RoundContext, rule_state: &mut RuleState) -> ReducerChoice {
        let &TensorValues { values, shape, rng, .. } = tensor;
        let squares = |rank: usize| {
            (
                leading_squares(shape, |warm: Option<&[f32]>| factors(values, shape, rank, warm, rng).q),
                sum_of_squares(values),
            )
        };
        // The residual grows to many times an update and would hide its entropy.
        let updates: Option<Vec<f32>> = tensor.residual.map(|residual| {
            let pairs = values.iter().zip(residual);
            pairs.map(|(value, residual)| value - residual).collect()
        });
        let matrix = Matrix {
            values: updates.as_deref().unwrap_or(values),
            shape,
            rng,
            squares: &squares,
        };
        let rank = (self.rank.choose(&matrix, context.round, rule_state) as usize)
            .min(shape.rows)
            .min(shape.cols);
        if !pays(shape, rank) {
            return keep::all();
        }
        let k = self.remainder.map_or(0, |density| density.count(shape.len()));
        ReducerChoice::new(Sends::Other, move |tensor, warm| reduce(tensor, rank, k, warm))
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        let rank = (self.rank.most(shape) as usize).min(shape.rows).min(shape.cols);
        let k = self.remainder.map_or(0, |density| density.count(shape.len()));
        match (&self.rank, pays(shape, rank)) {
            (_, true) => Some((METHOD.form.parts)([rank as u32, k as u32, 0, 0], shape)),
            // The tensor is sent whole in some rounds, and as factors in others.
            (RankSpec::Schedule(_), false) => None,
            _ => Some(vec![Part::plain(shape.rows, shape.cols)]),
        }
    }

    fn remembers(&self) -> bool {
        matches!(self.rank, RankSpec::Entropy(_))
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn wants_residual(&self) -> bool {
        matches!(self.rank, RankSpec::Entropy(_))
    }
}

/// Both factors, and the `k` largest values of the remainder of their decoded product.
fn reduce<'v>(
    tensor: &TensorValues<'v>,
    rank: usize,
    k: usize,
    warm: &mut Option<Vec<f32>>,
) -> Result<Reduction<'v>, Error> {
    let &TensorValues { values, shape, .. } = tensor;
    let Factors { p, q } = factors(values, shape, rank, warm.as_deref(), tensor.rng);
    *warm = Some(q.clone());
    let mut parts = vec![
        ReducedPart::plain(p, shape.rows, rank),
        ReducedPart::plain(q, rank, shape.cols),
    ];
    let mut sent = 0;
    if k > 0 {
        let p = tensor.received(&parts[0].values, parts[0].shape, 0)?;
        let q = tensor.received(&parts[1].values, parts[1].shape, 1)?;
        let left = remainder(values, &p, &q, rank, shape.cols);
        let support = top_k(tensor.threads, &left, k);
        sent = support.len();
        parts.push(ReducedPart::indexed(tensor.threads, &left, support));
    }
    Ok(Reduction {
        form: METHOD.form,
        numbers: [rank as u32, sent as u32, 0, 0],
        parts,
    })
}

/// Row by row, so that the remainder is added before anything reaches the sink.
fn decode([rank, k, ..]: Numbers, planes: &Planes<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let p = planes.part(0)?.whole()?;
    let q = planes.part(1)?.whole()?;
    let mut remainder = match k {
        0 => None,
        _ => Some(planes.sparse(2)?),
    };
    planes.fill(sink, |start, block| {
        multiply(&p, &q, rank as usize, planes.shape.cols, start, block);
        remainder
            .as_mut()
            .map_or(Ok(()), |remainder| remainder.add_to(start, block))
    })?;
    remainder.map_or(Ok(()), |remainder| remainder.finish())
}

short_forms!(LowRank);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    rank: RankSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    remainder: Option<Density>,
}

impl Short for LowRank {
    const FORMS: &'static str = "a rank of 1 to 1024, or { rank = .., remainder = density }";
    type Table = Table;

    fn from_number(number: f64) -> Result<Self, Error> {
        if number.fract() != 0.0 || !(1.0..=f64::from(MAX_RANK)).contains(&number) {
            return Err(Error::Usage(format!("a rank is 1 to 1024, not {number}")));
        }
        Ok(Self {
            rank: RankSpec::Fixed(number as u32),
            remainder: None,
        })
    }

    fn from_table(Table { rank, remainder }: Table) -> Result<Self, Error> {
        Ok(Self { rank, remainder })
    }

    fn parts(&self) -> Result<f64, Table> {
        match (&self.rank, self.remainder) {
            (RankSpec::Fixed(rank), None) => Ok(f64::from(*rank)),
            (rank, remainder) => Err(Table {
                rank: rank.clone(),
                remainder,
            }),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Factors {
    /// Left factor: `[rows, rank]`, row-major, columns orthonormal or zero.
    pub(crate) p: Vec<f32>,
    /// Right factor, transposed: `[rank, cols]`, row-major, finite. The warm start of the next frame.
    pub(crate) q: Vec<f32>,
}

/// Whether the factors hold fewer numbers than the matrix.
pub(crate) fn pays(shape: Shape, rank: usize) -> bool {
    rank > 0 && rank.saturating_mul(shape.rows + shape.cols) < shape.len()
}

/// The factors of `values`, from one iteration. Shapes: `values: [rows, cols]`, finite; `rank` is at most the lesser of
/// the two; `warm: [any rank, cols]`, the `q` of last time, of which the largest rows are taken, and Gaussians for the
/// others.
pub(crate) fn factors(values: &[f32], shape: Shape, rank: usize, warm: Option<&[f32]>, rng: KeyedRng) -> Factors {
    let rank = rank.min(shape.rows).min(shape.cols);
    if rank == 0 {
        return Factors {
            p: Vec::new(),
            q: Vec::new(),
        };
    }
    let start = start(shape.cols, rank, warm.unwrap_or_default(), rng);
    let mut columns = times(values, shape, &start);
    orthonormalize(&mut columns, shape.rows);
    let p: Vec<f32> = (0..shape.rows)
        .flat_map(|i| columns.chunks(shape.rows).map(move |column| column[i] as f32))
        .collect();
    let q = transposed_times(values, shape, &p, rank);
    Factors { p, q }
}

/// Rows to start from, `[rank, cols]`, each of length one so that M shows which of them it nearly annihilates.
pub(crate) fn start(cols: usize, rank: usize, warm: &[f32], rng: KeyedRng) -> Vec<f64> {
    let mut rows: Vec<(f64, &[f32])> = warm.chunks_exact(cols).map(|row| (norm_f32(row), row)).collect();
    rows.retain(|(norm, _)| norm.is_finite() && *norm > 0.0);
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    rows.truncate(rank);
    let mut out: Vec<f64> = rows
        .iter()
        .flat_map(|(norm, row)| row.iter().map(move |&value| f64::from(value) / norm))
        .collect();
    let rng = keyed(rng, METHOD.stream);
    for row in rows.len()..rank {
        let rng = KeyedRng::new(rng.bits(row), row);
        let gaussians: Vec<f64> = (0..cols).map(|j| gaussian(rng, j)).collect();
        let norm = norm(&gaussians).max(f64::MIN_POSITIVE);
        out.extend(gaussians.iter().map(|value| value / norm));
    }
    out
}

/// By Box and Muller 1958; only an encoder draws these.
fn gaussian(rng: KeyedRng, index: usize) -> f64 {
    let unit = |at| ((rng.bits(at) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (-2.0 * math::ln(unit(2 * index))).sqrt() * math::cos(TAU * unit(2 * index + 1))
}

/// `M q^T` by columns: `[rank, rows]`. Shapes: `q: [rank, cols]`.
fn times(values: &[f32], shape: Shape, q: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; q.len() / shape.cols * shape.rows];
    vectorized(
        #[inline(always)]
        || {
            for (i, row) in values.chunks_exact(shape.cols).enumerate() {
                for (out, q) in out.chunks_exact_mut(shape.rows).zip(q.chunks_exact(shape.cols)) {
                    out[i] = product(row, q);
                }
            }
        },
    );
    out
}

#[inline(always)]
pub(crate) fn product(a: &[f32], b: &[f64]) -> f64 {
    let heads = a.chunks_exact(LANES);
    let tails = b.chunks_exact(LANES);
    let head = heads.remainder();
    let tail = tails.remainder();
    let rest: f64 = head.iter().zip(tail).map(|(&a, b)| f64::from(a) * b).sum();
    let mut sums = [0.0; LANES];
    for (a, b) in heads.zip(tails) {
        for ((sum, &a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += f64::from(a) * b;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Modified Gram-Schmidt, each column twice; a column that depends on those before it becomes zero. Shapes: `columns:
/// [rank, rows]`.
pub(crate) fn orthonormalize(columns: &mut [f64], rows: usize) {
    let longest = columns.chunks(rows).map(norm).fold(0.0, f64::max);
    vectorized(
        #[inline(always)]
        || {
            for at in 0..columns.len() / rows {
                let (before, rest) = columns.split_at_mut(at * rows);
                let column = &mut rest[..rows];
                for other in before.chunks(rows).chain(before.chunks(rows)) {
                    let along = dot(column, other);
                    column.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
                }
                let norm = dot(column, column).sqrt();
                let factor = if norm > longest * DEPENDENT { 1.0 / norm } else { 0.0 };
                column.iter_mut().for_each(|value| *value *= factor);
            }
        },
    );
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (heads, tail) = a.as_chunks::<LANES>();
    let (others, others_tail) = b.as_chunks::<LANES>();
    let rest: f64 = tail.iter().zip(others_tail).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; LANES];
    for (a, b) in heads.iter().zip(others) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// `p^T M`: `[rank, cols]`, cut to the range of f32.
#[inline(never)]
fn transposed_times(values: &[f32], shape: Shape, p: &[f32], rank: usize) -> Vec<f32> {
    let mut sums = vec![0.0; rank * shape.cols];
    let mut wide = vec![0.0; ROWS * shape.cols];
    for (rows, p) in values.chunks(ROWS * shape.cols).zip(p.chunks(ROWS * rank)) {
        // The rows that the last block lacks count as zeros.
        wide.fill(0.0);
        wide.iter_mut()
            .zip(rows)
            .for_each(|(wide, &value)| *wide = f64::from(value));
        let (first, rest) = wide.split_at(2 * shape.cols);
        let ((a, b), (c, d)) = (first.split_at(shape.cols), rest.split_at(shape.cols));
        let at = |row: usize, column: usize| p.get(row * rank + column).map_or(0.0, |&p| f64::from(p));
        for (column, sums) in sums.chunks_exact_mut(shape.cols).enumerate() {
            let [p0, p1, p2, p3] = [0, 1, 2, 3].map(|row| at(row, column));
            for ((((sum, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *sum += (p0 * a + p1 * b) + (p2 * c + p3 * d);
            }
        }
    }
    sums.into_iter()
        .map(|sum: f64| sum.clamp(f32::MIN.into(), f32::MAX.into()) as f32)
        .collect()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn norm_f32(values: &[f32]) -> f64 {
    values
        .iter()
        .map(|&value| f64::from(value) * f64::from(value))
        .sum::<f64>()
        .sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng() -> KeyedRng {
        KeyedRng::new(6, 1)
    }

    fn product_of(factors: &Factors, shape: Shape) -> Vec<f32> {
        let mut out = vec![0.0; shape.len()];
        let rank = factors.q.len() / shape.cols;
        for (at, part) in out.chunks_mut(5).enumerate() {
            multiply(&factors.p, &factors.q, rank, shape.cols, at * 5, part);
        }
        out
    }

    fn energy(values: &[f32]) -> f64 {
        norm_f32(values).powi(2)
    }

    fn error(values: &[f32], factors: &Factors, shape: Shape) -> f64 {
        let product = product_of(factors, shape);
        energy(&values.iter().zip(product).map(|(a, b)| a - b).collect::<Vec<_>>())
    }

    /// Entries of uniform noise, columns and rows of very different sizes.
    fn matrix(shape: Shape) -> Vec<f32> {
        (0..shape.len())
            .map(|at| {
                let (i, j) = (at / shape.cols, at % shape.cols);
                let noise = KeyedRng::new(5, 5).unit(at) - 0.5;
                noise / (1 + i % 7) as f32 + 3.0 / ((1 + i) * (1 + j)) as f32 + ((i * j) as f32).cos() / 9.0
            })
            .collect()
    }

    /// Squares of the singular values, descending: one-sided Jacobi on the columns.
    fn spectrum(values: &[f32], shape: Shape) -> Vec<f64> {
        let mut columns: Vec<Vec<f64>> = (0..shape.cols)
            .map(|j| (0..shape.rows).map(|i| f64::from(values[i * shape.cols + j])).collect())
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for _ in 0..30 {
            for a in 0..shape.cols {
                for b in a + 1..shape.cols {
                    let (x, y) = (columns[a].clone(), columns[b].clone());
                    let (xx, yy, xy) = (dot(&x, &x), dot(&y, &y), dot(&x, &y));
                    let angle = 0.5 * (2.0 * xy).atan2(xx - yy);
                    let (sin, cos) = angle.sin_cos();
                    for i in 0..shape.rows {
                        columns[a][i] = cos * x[i] + sin * y[i];
                        columns[b][i] = cos * y[i] - sin * x[i];
                    }
                }
            }
        }
        let mut squares: Vec<f64> = columns.iter().map(|column| dot(column, column)).collect();
        squares.sort_by(|a, b| b.total_cmp(a));
        squares
    }

    #[test]
    fn a_worked_example() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let shape = Shape { rows: 3, cols: 2 };
        let first = factors(&values, shape, 1, Some(&[1.0, 0.0]), rng());
        let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5) && a.len() == b.len();
        assert!(near(&first.p, &[0.169_031, 0.507_093, 0.845_154]));
        assert!(near(&first.q, &[5.916_08, 7.437_357]));
        assert!(near(
            &product_of(&first, shape),
            &[1.0, 1.257_143, 3.0, 3.771_429, 5.0, 6.285_714]
        ));
        let relative = |factors: &Factors| error(&values, factors, shape) / 91.0;
        assert!((relative(&first) - 0.007_535_3).abs() < 1e-6);
        let second = factors(&values, shape, 1, Some(&first.q), rng());
        assert!((relative(&second) - 0.002_906_69).abs() < 1e-7);
        let best = spectrum(&values, shape)[1] / 91.0;
        assert!((best - 0.002_906_65).abs() < 1e-7);
    }

    #[test]
    fn the_product_is_a_projection() {
        for (rows, cols) in [(1, 9), (9, 1), (12, 30), (40, 17), (33, 33)] {
            let shape = Shape { rows, cols };
            let values = matrix(shape);
            let squares = spectrum(&values, shape);
            for rank in [1, 2, 4, rows.min(cols)] {
                let rank = rank.min(rows).min(cols);
                let factors = factors(&values, shape, rank, None, rng());
                assert_eq!((factors.p.len(), factors.q.len()), (rows * rank, rank * cols));
                for (a, b) in (0..rank).flat_map(|a| (0..rank).map(move |b| (a, b))) {
                    let dot: f64 = (0..rows)
                        .map(|i| f64::from(factors.p[i * rank + a]) * f64::from(factors.p[i * rank + b]))
                        .sum();
                    assert!((dot - f64::from(u8::from(a == b))).abs() < 1e-5, "{dot}");
                }
                let product = product_of(&factors, shape);
                for (r, j) in (0..rank).flat_map(|r| (0..cols).map(move |j| (r, j))) {
                    let along: f64 = (0..rows)
                        .map(|i| {
                            f64::from(factors.p[i * rank + r]) * f64::from(values[i * cols + j] - product[i * cols + j])
                        })
                        .sum();
                    assert!(along.abs() < 1e-5 * energy(&values).sqrt(), "{along}");
                }
                let error = error(&values, &factors, shape);
                let slack = 1e-6 * energy(&values);
                assert!((error - (energy(&values) - energy(&factors.q))).abs() < slack);
                assert!(error > squares[rank.min(squares.len())..].iter().sum::<f64>() - slack);
            }
        }
    }

    #[test]
    fn a_matrix_of_low_rank_is_exact_and_columns_to_spare_are_zero() {
        let shape = Shape { rows: 20, cols: 14 };
        let values: Vec<f32> = (0..shape.len())
            .map(|at| (at / 14 % 5) as f32 * (at % 14) as f32 - 2.0 * (at / 14 % 3) as f32)
            .collect();
        for rank in [2, 3, 6] {
            let factors = factors(&values, shape, rank, None, rng());
            assert!(error(&values, &factors, shape) < 1e-10 * energy(&values));
            let zeros = (0..rank).filter(|r| (0..20).all(|i| factors.p[i * rank + r] == 0.0));
            assert_eq!(zeros.count(), rank - 2);
            assert!(factors.p.iter().chain(&factors.q).all(|value| value.is_finite()));
        }
    }

    #[test]
    fn warm_starts_go_down_to_the_best() {
        let shape = Shape { rows: 24, cols: 31 };
        let values = matrix(shape);
        let best: f64 = spectrum(&values, shape)[3..].iter().sum();
        let mut factors_ = factors(&values, shape, 3, None, rng());
        let mut before = error(&values, &factors_, shape);
        for _ in 0..200 {
            factors_ = factors(&values, shape, 3, Some(&factors_.q), rng());
            let now = error(&values, &factors_, shape);
            assert!(now <= before * (1.0 + 1e-6));
            before = now;
        }
        assert!(before < best * 1.001, "{before} {best}");
    }

    #[test]
    fn a_start_of_another_rank_keeps_the_largest_rows() {
        let warm = [0.0, 0.0, 0.0, 3.0, 0.0, 4.0, 0.0, -9.0, 0.0, 1.0, 0.0, 0.0];
        let fewer = start(3, 2, &warm, rng());
        assert_eq!(fewer, [0.0, -1.0, 0.0, 0.6, 0.0, 0.8]);
        let more = start(3, 5, &warm, rng());
        assert_eq!(more[..9], [0.0, -1.0, 0.0, 0.6, 0.0, 0.8, 1.0, 0.0, 0.0]);
        assert!(
            more[9..].iter().all(|&value| value != 0.0),
            "a dead row gets a new chance"
        );
        assert_eq!(start(3, 5, &[], rng())[9..], more[9..]);
    }

    #[test]
    fn gaussians_have_no_mean_and_unit_variance() {
        let values: Vec<f64> = (0..20_000).map(|i| gaussian(rng(), i)).collect();
        let mean = values.iter().sum::<f64>() / 2e4;
        let fourth = values.iter().map(|v| v.powi(4)).sum::<f64>() / 2e4;
        assert!(mean.abs() < 0.04 && (norm(&values).powi(2) / 2e4 - 1.0).abs() < 0.05 && (fourth - 3.0).abs() < 0.3);
    }

    #[test]
    fn edges() {
        let shape = Shape { rows: 4, cols: 3 };
        assert_eq!(
            product_of(&factors(&[0.0; 12], shape, 2, None, rng()), shape),
            [0.0; 12]
        );
        for scale in [1e-45, 1e-38, 1e38, f32::MAX] {
            let values: [f32; 12] = std::array::from_fn(|at| if at % 2 == 0 { scale } else { -scale });
            let factors = factors(&values, shape, 2, None, rng());
            assert!(
                factors.p.iter().chain(&factors.q).all(|value| value.is_finite()),
                "{scale:e}"
            );
        }
        assert!(factors(&[], Shape::row(0), 1, None, rng()).p.is_empty());
        assert!(pays(Shape { rows: 10, cols: 10 }, 4) && !pays(Shape { rows: 10, cols: 10 }, 5));
        assert!(!pays(Shape::row(9), 1) && !pays(Shape { rows: 10, cols: 10 }, 0));
    }
}
