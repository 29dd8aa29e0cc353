//! A matrix as a tensor train: four cores from truncated singular value decompositions (TT-SVD, Oseledets 2011,
//! algorithm 1).
//!
//! ```text
//! M[(i j), (k l)] = G1[i, :] G2[:, j, :] G3[:, k, :] G4[:, l]        rows = a b, cols = c d
//! ```
//!
//! a is the largest divisor of the rows that is at most their root. The columns of a convolution are c inputs by d
//! places of the kernel; of any other matrix c is the largest divisor up to the root, too. The left factor of each
//! decomposition is a core with orthonormal columns, and what remains is decomposed further. So the result is a
//! projection: its squared error is the sum of what the three steps leave out. With exact decompositions that is at most
//! the sum of the squared singular values that the ranks cut from the three unfoldings (theorem 2.2). Ours are three steps
//! of subspace iteration with more vectors than asked for ([`super::singular`]), which leave more where singular values
//! hardly fall.
//!
//! The ranks are given, or all are the largest one number with which the cores hold at most a share of the values.
//! Components that are rounding errors are not sent.

pub(crate) mod dims;

use serde::{Deserialize, Serialize};

use crate::density::Density;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::layout::Shape;
use crate::reduce::form::{Form, Number, Numbers, Part, ReducedPart, Reduction, Width};
use crate::reduce::keep;
use crate::reduce::low_rank::factors;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::planes::Planes;
use crate::reduce::products::multiply;
use crate::reduce::singular::Singular;
use crate::reduce::tensor_train::dims::{Dims, MOST, Ranks};
use crate::rng::KeyedRng;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::sink::Sink;

// Steps of subspace iteration.
const STEPS: usize = 3;
// Vectors of the subspace beyond the rank: Halko, Martinsson and Tropp 2011 recommend 5 to 10.
const BEYOND: usize = 8;
// Squared singular values below this share of the largest are rounding errors.
const NEGLIGIBLE: f64 = 1e-12;

/// Four cores: `0.05` or `{ ranks = [4, 8, 4] }`. Where they would not hold fewer numbers than the tensor, it is sent
/// whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorTrain(Size);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    /// Numbers of the cores, as a share of the values.
    Share(Density),
    /// Largest ranks.
    Ranks(Ranks),
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "tensor_train",
        about: "Four cores of a tensor train, of a share of the numbers or of given ranks.",
        examples: &["{ tensor_train = 0.5 }", "{ tensor_train = { ranks = [2, 3, 2] } }"],
        leaves_out: false,
    },
    form: &Form {
        tag: 3,
        second: Some(4),
        numbers: &[
            Number::new("first part of the columns", Width::Varint, |c, _, shape| {
                c > 0 && shape.cols.is_multiple_of(c as usize)
            }),
            rank("first rank", 0),
            rank("second rank", 1),
            rank("third rank", 2),
        ],
        words: |[_, first, second, third], _| format!("tensor train of ranks {first}, {second}, {third}"),
        parts: |[c, ranks @ ..], shape| {
            let cores = Dims::new(shape, c as usize).cores(ranks);
            cores.map(|Shape { rows, cols }| Part::plain(rows, cols)).to_vec()
        },
        decode,
    },
    stream: 0,
};

/// The rank `at`, possible after those before it.
const fn rank(name: &'static str, at: usize) -> Number {
    const FITS: [fn(u32, Numbers, Shape) -> bool; 3] = [
        |rank, [c, ..], shape| Dims::new(shape, c as usize).fits([rank, 1, 1], 0),
        |rank, [c, first, ..], shape| Dims::new(shape, c as usize).fits([first, rank, 1], 1),
        |rank, [c, first, second, _], shape| Dims::new(shape, c as usize).fits([first, second, rank], 2),
    ];
    Number::new(name, Width::Varint, FITS[at])
}

impl Reducer for TensorTrain {
    fn choose(&self, tensor: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        match self.ranks(tensor.shape, tensor.places) {
            (_, None) => keep::all(),
            (dims, Some(ranks)) => ReducerChoice::new(Sends::Other, move |tensor, _| Ok(reduced(tensor, dims, ranks))),
        }
    }

    fn most_parts(&self, shape: Shape, places: usize) -> Option<Vec<Part>> {
        Some(match self.ranks(shape, places) {
            (_, None) => vec![Part::plain(shape.rows, shape.cols)],
            (dims, Some(ranks)) => dims.cores(ranks).map(|core| Part::plain(core.rows, core.cols)).to_vec(),
        })
    }

    fn needs_all_rows(&self) -> bool {
        true
    }
}

impl TensorTrain {
    /// The dimensions of a tensor, and the largest ranks of its cores; without ranks it is sent whole.
    fn ranks(&self, shape: Shape, places: usize) -> (Dims, Option<Ranks>) {
        let dims = Dims::of(shape, places);
        let ranks = match self.0 {
            Size::Share(share) => dims.within(share.count(shape.len())),
            Size::Ranks(ranks) => Some(dims.cut(ranks)).filter(|&ranks| dims.is_less(ranks)),
        };
        (dims, ranks)
    }
}

fn reduced<'v>(tensor: &TensorValues<'v>, dims: Dims, mut ranks: Ranks) -> Reduction<'v> {
    let [a, b, c, d] = dims.dims;
    let mut left = tensor.values.to_vec();
    let mut before = 1;
    let mut parts = Vec::with_capacity(4);
    for (rank, dim) in ranks.iter_mut().zip([a, b, c]) {
        let rows = before * dim;
        let (core, next) = decomposed(&left, rows, *rank as usize, tensor.rng);
        before = core.len() / rows;
        *rank = before as u32;
        parts.push(ReducedPart::plain(core, rows, before));
        left = next;
    }
    parts.push(ReducedPart::plain(left, before, d));
    let [first, second, third] = ranks;
    Reduction {
        form: METHOD.form,
        numbers: [c as u32, first, second, third],
        parts,
    }
}

/// At most `rank` left singular vectors, `[rows, rank]`, of `values` as a matrix of `rows`; and their products with it,
/// `[rank, cols]`. At least one.
fn decomposed(values: &[f32], rows: usize, rank: usize, rng: KeyedRng) -> (Vec<f32>, Vec<f32>) {
    let cols = values.len() / rows;
    let shape = Shape { rows, cols };
    let first = factors(values, shape, rank + BEYOND, None, rng);
    let found = (1..STEPS).fold(first, |found, _| {
        factors(values, shape, rank + BEYOND, Some(&found.q), rng)
    });
    let Singular {
        rank: wide,
        p,
        q,
        squares,
    } = Singular::new(&found, cols, |_| 1.0);
    let least = squares[0] * NEGLIGIBLE;
    let kept = squares.iter().take(rank).take_while(|&&square| square > least).count();
    let kept = kept.max(1);
    let p = p.chunks_exact(wide).flat_map(|row| &row[..kept]).copied().collect();
    (p, q[..kept * cols].to_vec())
}

fn decode([_, first, second, third]: Numbers, planes: &Planes<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let Shape { rows, cols } = planes.shape;
    let second = second as usize;
    let product = |at: usize, rank: u32, len: usize| -> Result<Vec<f32>, Error> {
        let left = planes.part(at)?.whole()?;
        let right = planes.part(at + 1)?.whole()?;
        let rank = rank as usize;
        let mut out = vec![0.0; len];
        multiply(&left, &right, rank, right.len() / rank, 0, &mut out);
        Ok(out)
    };
    // [a, first] times [first, b second] is [rows, second]; [second c, third] times [third, d] is [second, cols].
    let p = product(0, first, rows * second)?;
    let q = product(2, third, second * cols)?;
    planes.fill(sink, |start, block| {
        multiply(&p, &q, second, cols, start, block);
        Ok(())
    })
}

short_forms!(TensorTrain);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// An array of another length would lose the rest.
    ranks: Vec<u32>,
}

impl Short for TensorTrain {
    const FORMS: &'static str = "a share of the numbers above 0 and at most 1, or { ranks = [.., .., ..] }";
    type Table = Table;

    fn from_number(number: f64) -> Result<Self, Error> {
        Density::new(number).map(|share| Self(Size::Share(share)))
    }

    fn from_table(Table { ranks }: Table) -> Result<Self, Error> {
        if let Some(rank) = ranks.iter().find(|rank| !(1..=MOST).contains(*rank)) {
            return Err(Error::Usage(format!("`ranks` are from 1 to {MOST} each, not {rank}")));
        }
        let count = ranks.len();
        let ranks = Ranks::try_from(ranks).map_err(|ranks| {
            Error::Usage(format!(
                "`ranks` of tensor_train are three, each between two of the four cores, such as [4, 8, 4]; {ranks:?} has {count}"
            ))
        })?;
        Ok(Self(Size::Ranks(ranks)))
    }

    fn parts(&self) -> Result<f64, Table> {
        match self.0 {
            Size::Share(share) => Ok(share.into()),
            Size::Ranks(ranks) => Err(Table { ranks: ranks.to_vec() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::quantize::QuantizeSpec;
    use crate::reduce::eigen::{eigen, gram};
    use crate::rules::samples::gaussian;

    const SHAPE: Shape = Shape { rows: 12, cols: 35 };

    /// The cores of `values`, and their ranks.
    fn cores(values: &[f32], dims: Dims, ranks: Ranks) -> (Vec<Vec<f32>>, Ranks) {
        let tensor = TensorValues {
            values,
            squared_gradients: None,
            residual: None,
            shape: dims.shape,
            places: 1,
            quantize: QuantizeSpec::Exact,
            rng: KeyedRng::new(3, 0),
            unbiased: false,
            threads: 1,
        };
        let Reduction {
            parts,
            numbers: [_, ranks @ ..],
            ..
        } = reduced(&tensor, dims, ranks);
        (parts.into_iter().map(|part| part.values.into_owned()).collect(), ranks)
    }

    /// The tensor of cores, by the definition.
    fn contracted((cores, ranks): &(Vec<Vec<f32>>, Ranks), dims: Dims) -> Vec<f32> {
        let [a, b, c, d] = dims.dims;
        let [first, second, third] = ranks.map(|rank| rank as usize);
        let value = |at: usize| {
            let (i, j, k, l) = (at / (b * c * d), at / (c * d) % b, at / d % c, at % d);
            let mut sum = 0.0;
            for (x, y) in (0..first * second).map(|at| (at / second, at % second)) {
                for z in 0..third {
                    sum += cores[0][i * first + x]
                        * cores[1][(x * b + j) * second + y]
                        * cores[2][(y * c + k) * third + z]
                        * cores[3][z * d + l];
                }
            }
            sum
        };
        (0..a * b * c * d).map(value).collect()
    }

    fn energy(values: &[f32]) -> f64 {
        values.iter().map(|value| f64::from(*value).powi(2)).sum()
    }

    fn left(values: &[f32], kept: &[f32]) -> f64 {
        energy(&values.iter().zip(kept).map(|(a, b)| a - b).collect::<Vec<_>>())
    }

    /// Squared singular values of the unfolding into `rows`, falling.
    fn unfolding(values: &[f32], rows: usize) -> Vec<f64> {
        let (mut squares, _) = eigen(gram(values, rows, values.len() / rows), rows);
        squares.sort_by(|a, b| b.total_cmp(a));
        squares
    }

    /// What the ranks cut from the spectra of the three unfoldings: the bound of the squared error.
    fn bound(values: &[f32], dims: Dims, ranks: Ranks) -> f64 {
        let [a, b, c, _] = dims.dims;
        let cut = |(rows, rank): (usize, u32)| -> f64 {
            unfolding(values, rows)
                .iter()
                .skip(rank as usize)
                .map(|square| square.max(0.0))
                .sum()
        };
        [a, a * b, a * b * c].into_iter().zip(ranks).map(cut).sum()
    }

    /// `3 e1 e1 e1 e1 + e2 e2 e2 e2`: the singular values of each unfolding are 3 and 1.
    #[test]
    fn a_worked_example() {
        let dims = Dims::of(Shape { rows: 4, cols: 4 }, 1);
        let mut values = vec![0.0; 16];
        (values[0], values[15]) = (3.0, 1.0);
        let near = |train: &(Vec<Vec<f32>>, Ranks), expected: f32| {
            let kept = contracted(train, dims);
            (kept[0] - 3.0).abs() < 1e-5 && (kept[15] - expected).abs() < 1e-5 && energy(&kept[1..15]) < 1e-9
        };
        assert!(near(&cores(&values, dims, [1; 3]), 0.0));
        let both = cores(&values, dims, [2, 4, 2]);
        assert_eq!(
            both.1, [2; 3],
            "two of the four components of the second unfolding are zero"
        );
        assert!(near(&both, 1.0));
        assert_eq!(bound(&values, dims, [1; 3]).round(), 3.0);
    }

    #[test]
    fn a_product_of_vectors_is_a_train_of_ranks_one() {
        let dims = Dims::of(SHAPE, 1);
        let [a, b, c, d] = dims.dims;
        let vectors = [a, b, c, d].map(|len| gaussian(len, len as u64));
        let value = |at: usize| {
            vectors[0][at / (b * c * d)] * vectors[1][at / (c * d) % b] * vectors[2][at / d % c] * vectors[3][at % d]
        };
        let values: Vec<f32> = (0..SHAPE.len()).map(value).collect();
        let train = cores(&values, dims, [3, 4, 5]);
        assert_eq!(train.1, [1; 3]);
        assert!(left(&values, &contracted(&train, dims)) < 1e-9 * energy(&values));
    }

    /// Noise has singular values that hardly fall, and one unfolding that is cut leaves no slack in the theorem.
    #[test]
    fn a_train_of_noise_passes_the_bound_by_a_tenth_at_most() {
        let mut most = 0.0f64;
        for (rows, cols, second) in [(144, 256, 58), (64, 144, 31), (36, 36, 7), (49, 121, 20)] {
            let dims = Dims::of(Shape { rows, cols }, 1);
            let ranks = dims.cut([MOST, second, MOST]);
            for values in [
                gaussian(rows * cols, 5),
                gaussian(rows * cols, 6).iter().map(|v| v.signum()).collect(),
            ] {
                // The first three cores have orthonormal columns.
                let error = energy(&values) - energy(&cores(&values, dims, ranks).0[3]);
                let bound: f64 = unfolding(&values, rows)[second as usize..].iter().sum();
                most = most.max(error / bound);
            }
        }
        assert!((1.0..1.1).contains(&most), "{most}");
    }

    #[test]
    fn extreme_values_have_finite_cores() {
        let dims = Dims::of(SHAPE, 1);
        for scale in [0.0, 1e-45, 1e-38, 1e38, f32::MAX] {
            let values: Vec<f32> = (0..SHAPE.len())
                .map(|at| if at % 3 == 0 { scale } else { -scale })
                .collect();
            let (cores, _) = cores(&values, dims, [2; 3]);
            assert!(cores.iter().flatten().all(|value| value.is_finite()), "{scale:e}");
        }
    }

    #[test]
    fn refusals_name_the_key() {
        #[derive(Debug, Deserialize)]
        struct Holder {
            #[expect(dead_code, reason = "parsing is the test")]
            reduce: crate::reduce::ReduceSpec,
        }
        for (text, expected) in [
            ("{ ranks = [0, 1, 1] }", "`ranks` are from 1 to 256 each, not 0"),
            ("{ ranks = [1, 1, 257] }", "`ranks` are from 1 to 256 each, not 257"),
            ("{ ranks = [1, 1] }", "such as [4, 8, 4]; [1, 1] has 2"),
            ("{ ranks = [1, 2, 3, 4] }", "such as [4, 8, 4]; [1, 2, 3, 4] has 4"),
            ("{ rank = 2 }", "unknown field `rank`, expected `ranks`"),
            ("{ }", "missing field `ranks`"),
            ("0", "a density must be above 0"),
            ("'all'", "a share of the numbers above 0 and at most 1, or { ranks"),
        ] {
            let refusal = toml::from_str::<Holder>(&format!("reduce = {{ tensor_train = {text} }}")).unwrap_err();
            assert!(refusal.to_string().contains(expected), "{text}\n{refusal}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(4), ..ProptestConfig::default() })]

        /// Full ranks give the tensor; lower ranks a projection within the bound.
        #[test]
        fn the_error_of_a_train_is_within_its_bound(rows in 2..20usize, cols in 2..24usize, ranks in [1..6u32, 1..9, 1..6], seed in 0..1000u64) {
            let dims = Dims::of(Shape { rows, cols }, 1);
            let decay = |(at, value): (usize, f32)| value / (1 + at / cols + 2 * (at % cols)) as f32;
            let values: Vec<f32> = gaussian(rows * cols, seed).into_iter().enumerate().map(decay).collect();
            let energy_of_all = energy(&values);
            let full = cores(&values, dims, dims.cut([MOST; 3]));
            prop_assert!(left(&values, &contracted(&full, dims)) < 1e-10 * energy_of_all);
            let ranks = dims.cut(ranks);
            let kept = contracted(&cores(&values, dims, ranks), dims);
            let error = left(&values, &kept);
            prop_assert!((error + energy(&kept) - energy_of_all).abs() < 1e-5 * energy_of_all, "not a projection");
            let bound = bound(&values, dims, ranks);
            prop_assert!(error <= 1.001 * bound + 1e-9 * energy_of_all, "{error} of {bound}");
        }

        /// Whatever a recipe declares: what is read bounds the memory and the work of a decoder.
        #[test]
        fn numbers_that_are_read_bound_what_is_allocated(rows in 1..400usize, cols in 1..400usize, numbers in [0..500u32, 0..1100, 0..1100, 0..1100]) {
            use crate::wire::{Reader, Writer};
            let shape = Shape { rows, cols };
            // As written, and with the first a divisor, so that the others are reached.
            let divided = cols / (1..=cols).rev().find(|at| cols.is_multiple_of(*at) && *at <= numbers[0] as usize).unwrap_or(1);
            for c in [numbers[0], divided as u32] {
                let mut bytes = Vec::new();
                let mut writer = Writer::new(&mut bytes);
                [c, numbers[1] % 30, numbers[2], numbers[3] % 60].into_iter().for_each(|number| writer.varint(number.into()));
                let mut reader = Reader::new(&bytes);
                let mut read = [0; 4];
                let fit = METHOD.form.numbers.iter().enumerate().try_for_each(|(at, number)| {
                    number.read(read, &mut reader, shape).map(|number| read[at] = number)
                });
                if fit.is_err() {
                    continue;
                }
                let cores: usize = (METHOD.form.parts)(read, shape).iter().map(|part| part.shape.len()).sum();
                prop_assert!(cores < shape.len() && read[2] as usize * (rows + cols) < shape.len());
            }
        }
    }
}
