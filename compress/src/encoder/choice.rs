//! Chooses between the codecs of a method (`or`) for each tensor and frame: the one that saves the most squared error
//! per coded byte. After AdaComp as surveys describe it, a choice between quantization and sparsification for each
//! layer; the measure and the sample are ours.
//!
//! Each codec encodes and decodes a sample of neighboring values, or the whole tensor where a codec of the choice needs
//! all rows. The first of equals is taken. Nothing is remembered: the sample begins in another place in each round.

use std::ops::Range;

use crate::code::method::CodeSpec;
use crate::encoder::sample::neighbors;
use crate::error::Error;
use crate::layout::Shape;
use crate::math::square;
use crate::quantize::numbers::sum_of_squares;
use crate::reduce::method::TensorValues;
use crate::rules::rule_state::RuleState;
use crate::section::decode::Section;
use crate::section::encode::encode;
use crate::section::input::{EncodedSection, Input};
use crate::section::sinks::Set;
use crate::spec::method::Method;
use crate::wire::Reader;

// One value in so many is a sample, within these limits: two codecs then take about a tenth of the time of encoding.
const SHARE: usize = 32;
const LEAST: usize = 1024;
const MOST: usize = 16_384;

/// The codec of `method` for `tensor`, whose quantizer does not matter.
pub(crate) fn codec<'m>(method: &'m Method, tensor: &TensorValues<'_>, round: u64) -> Result<&'m Method, Error> {
    if method.or.is_none() || tensor.values.iter().all(|value| *value == 0.0) {
        return Ok(method);
    }
    let needs_all = method.each().any(|codec| codec.reduce.method().needs_all_rows());
    let range = if needs_all {
        0..tensor.values.len()
    } else {
        sample(tensor.values, round)
    };
    let mut best: Option<(f64, &Method)> = None;
    for codec in method.each() {
        let sampled = part(tensor, &range, codec);
        let saved = saved_per_byte(&sampled, codec, round, range.len() == tensor.values.len())?;
        if best.is_none_or(|(most, _)| saved > most) {
            best = Some((saved, codec));
        }
    }
    Ok(best.map_or(method, |(_, codec)| codec))
}

/// The values in `range` as a tensor with the quantizer of `codec`.
fn part<'v>(tensor: &TensorValues<'v>, range: &Range<usize>, codec: &Method) -> TensorValues<'v> {
    let cut = |values: &'v [f32]| &values[range.clone()];
    TensorValues {
        values: cut(tensor.values),
        squared_gradients: tensor.squared_gradients.map(cut),
        residual: tensor.residual.map(cut),
        shape: if range.len() == tensor.values.len() {
            tensor.shape
        } else {
            Shape::row(range.len())
        },
        quantize: codec.quantize,
        ..*tensor
    }
}

/// Share of the energy that a decoder would have, per byte. Below zero if sending nothing were better. The bytes are
/// those of the section if `is_whole`, else without the tables of the coder, which a sample would overrate.
fn saved_per_byte(tensor: &TensorValues<'_>, codec: &Method, round: u64, is_whole: bool) -> Result<f64, Error> {
    let input = Input {
        tensor: *tensor,
        chosen: codec
            .reduce
            .method()
            .choose(tensor, round.into(), &mut RuleState::default()),
        leading: None,
        code: codec.code,
    };
    let EncodedSection { bytes, stages, .. } = encode(&input, &mut None)?;
    let mut decoded = vec![0.0; tensor.values.len()];
    Section::read(&mut Reader::new(&bytes), tensor.shape, tensor.rng)?.decode(&mut Set(&mut decoded))?;
    let pairs = tensor.values.iter().zip(decoded);
    let error: f64 = pairs
        .map(|(value, decoded)| square(f64::from(*value) - f64::from(decoded)))
        .sum();
    let len = if is_whole || codec.code == CodeSpec::Pack {
        bytes.len() as f64
    } else {
        stages.entropy_bound.clamp(1.0, bytes.len() as f64)
    };
    Ok((1.0 - error / sum_of_squares(tensor.values)) / len)
}

/// Neighboring values that are not all zero, in another place for each round; all values of a short tensor, or if the
/// sample has only zeros.
fn sample(values: &[f32], round: u64) -> Range<usize> {
    let count = (values.len() / SHARE).clamp(LEAST, MOST);
    let range = neighbors(values.len(), count, round);
    if values[range.clone()].iter().any(|value| *value != 0.0) {
        range
    } else {
        0..values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::QuantizeSpec;
    use crate::rng::KeyedRng;
    use crate::rules::samples::gaussian;

    fn method(text: &str) -> Method {
        toml::from_str(text).unwrap()
    }

    fn tensor(values: &[f32]) -> TensorValues<'_> {
        TensorValues {
            values,
            squared_gradients: None,
            residual: None,
            shape: Shape::row(values.len()),
            places: 1,
            quantize: QuantizeSpec::Exact,
            rng: KeyedRng::new(1, 0),
            unbiased: false,
            threads: 1,
        }
    }

    const EITHER: &str = "reduce = { top_k = 0.01 }\nor = { quantize = 'sign' }";

    fn of(method: &Method, values: &[f32]) -> &'static str {
        let chosen = codec(method, &tensor(values), 3).unwrap();
        if chosen.or.is_some() { "first" } else { "second" }
    }

    /// Of one large value among 1,000, top-k keeps all energy in a few bytes; of equal magnitudes it keeps a hundredth,
    /// and signs all.
    #[test]
    fn peaked_values_are_sparsified_and_flat_ones_quantized() {
        let method = method(EITHER);
        let mut peaked = vec![1e-6; 1000];
        peaked[17] = -3.0;
        assert_eq!(of(&method, &peaked), "first");
        let flat: Vec<f32> = (0..1000).map(|at| if at % 3 == 0 { 0.5 } else { -0.5 }).collect();
        assert_eq!(of(&method, &flat), "second");
        assert_eq!(of(&method, &[0.0; 1000]), "first");
    }

    /// Top-k: 10 values of 0.5 take 1 + 2 + 40 bytes and their places; signs of 1,000 values 1 + 1 + 4 + 125.
    #[test]
    fn the_measure_is_energy_kept_per_byte() {
        let flat = vec![0.5; 1000];
        let (tensor, codec) = (tensor(&flat), method("quantize = 'sign'"));
        let tensor = TensorValues {
            quantize: codec.quantize,
            ..tensor
        };
        let saved = saved_per_byte(&tensor, &codec, 0, true).unwrap();
        assert!((saved - 1.0 / 131.0).abs() < 1e-12, "{}", 1.0 / saved);
    }

    #[test]
    fn the_first_of_equals_is_taken() {
        let method = method("quantize = 'sign'\nor = { quantize = 'sign' }");
        assert_eq!(of(&method, &gaussian(500, 1)), "first");
    }

    #[test]
    fn samples_are_short_and_move() {
        let values = gaussian(100_000, 1);
        let starts: Vec<usize> = (0..4).map(|round| sample(&values, round).start).collect();
        assert!(starts.windows(2).all(|pair| pair[0] != pair[1]), "{starts:?}");
        assert!((0..50).all(|round| sample(&values, round).len() == 3125));
        assert_eq!(sample(&values[..1000], 5), 0..1000);
        let mut zeros = vec![0.0; 100_000];
        zeros[99_999] = 1.0;
        assert_eq!(sample(&zeros, 0), 0..100_000);
    }

    /// What is chosen on a sample is what is best on the whole tensor, for tensors of one distribution.
    #[test]
    fn a_sample_chooses_as_the_whole_tensor_does() {
        let method = method(
            "reduce = { top_k = 0.02 }\nquantize = { uniform = 4 }\ncode = 'rans'\nor = { quantize = { uniform = 2 }, code = 'rans' }",
        );
        for power in [1, 3, 7] {
            let values: Vec<f32> = gaussian(60_000, 4).into_iter().map(|value| value.powi(power)).collect();
            let all = method.each().map(|codec| {
                let tensor = part(&tensor(&values), &(0..values.len()), codec);
                saved_per_byte(&tensor, codec, 0, true).unwrap()
            });
            let all: Vec<f64> = all.collect();
            let best = if all[1] > all[0] { "second" } else { "first" };
            assert_eq!(of(&method, &values), best, "{power}: {all:?}");
        }
    }
}
