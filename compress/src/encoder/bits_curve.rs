//! What each choice of bits would cost a section: the squared error and the coded bits, measured on its values or on a sample.

use serde::{Deserialize, Serialize};

use crate::code::method::Code;
use crate::encoder::sample::neighbors;
use crate::error::Error;
use crate::layout::Shape;
use crate::math::{self, square};
use crate::quantize::QuantizeSpec;
use crate::quantize::numbers::sum_of_squares;
use crate::quantize::recipe::Quantize;
use crate::quantize::uniform::Uniform;
use crate::reduce::method::Sends;
use crate::rng::KeyedRng;
use crate::rules::bits::CHOICES;
use crate::section::input::Input;
use crate::wire::Reader;

// Number of choices.
pub(crate) const COUNT: usize = CHOICES.len();
// Numbers by which a network tells distributions apart.
pub(crate) const FEATURES: usize = 3;
// Share of a new sample in the mean of the samples of its section.
const FRESH: f64 = 0.3;

/// Error and bits of each choice, per unit of energy and per value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct BitsCurve {
    pub(crate) errors: [f64; COUNT],
    pub(crate) bits: [f64; COUNT],
    /// Logarithm of the measured share of the energy over that of the values: 0 unless a reducer keeps a part.
    pub(crate) shift: f64,
    /// Logarithms of the largest magnitude over the root mean square, and of the kurtosis.
    pub(crate) peak: f64,
    pub(crate) kurtosis: f64,
}

impl BitsCurve {
    /// Cost of each choice, up to a factor.
    pub(crate) fn costs(&self, u: f64) -> [f64; COUNT] {
        costs(&self.errors, &self.bits, u + self.shift)
    }

    pub(crate) fn features(&self, len: usize) -> [f64; FEATURES] {
        [
            self.peak - 1.5,
            self.kurtosis / 2.0 - 0.8,
            (math::ln(len as f64) - 9.0) / 3.0,
        ]
    }

    /// What the network predicts: numbers of like size.
    pub(crate) fn targets(&self) -> [f64; 2 * COUNT] {
        std::array::from_fn(|at| {
            if at < COUNT {
                math::ln(self.errors[at].max(1e-12))
            } else {
                self.bits[at - COUNT] * std::f64::consts::LN_2
            }
        })
    }

    /// Moves towards a newer measurement.
    pub(crate) fn follow(&mut self, now: &Self) {
        let toward = |old: &mut f64, now: f64| *old += FRESH * (now - *old);
        let pairs = self
            .errors
            .iter_mut()
            .zip(now.errors)
            .chain(self.bits.iter_mut().zip(now.bits));
        pairs.for_each(|(old, now)| toward(old, now));
        toward(&mut self.shift, now.shift);
        toward(&mut self.peak, now.peak);
        toward(&mut self.kurtosis, now.kurtosis);
    }

    pub(crate) fn is_finite(&self) -> bool {
        let sums = self.errors.iter().chain(&self.bits).sum::<f64>() + self.shift + self.peak + self.kurtosis;
        sums.is_finite()
    }
}

pub(crate) fn costs(errors: &[f64], bits: &[f64], u: f64) -> [f64; COUNT] {
    let price = math::exp(-u) / 32.0;
    std::array::from_fn(|at| errors[at] + price * bits[at])
}

/// The cheapest choice; the one of fewest bits among equals.
pub(crate) fn cheapest(costs: &[f64; COUNT]) -> usize {
    (0..COUNT).fold(0, |best, at| if costs[at] < costs[best] { at } else { best })
}

/// Whether the values that are quantized are those of the tensor: then a part of them can be measured alone.
pub(crate) fn is_kept(input: &Input<'_>) -> bool {
    matches!(input.chosen.sends, Sends::All | Sends::Components)
}

/// Measures every choice on at most `limit` neighboring values of `input`, which begin in another place for each `start`;
/// `None` if they are all zero.
pub(crate) fn measure(input: &Input<'_>, limit: usize, start: usize) -> Result<Option<BitsCurve>, Error> {
    let QuantizeSpec::Uniform(uniform) = input.tensor.quantize else {
        return Ok(None);
    };
    let values = input.tensor.values;
    let rng = input.tensor.rng;
    let code = input.code.candidates()[0];
    let of = |parts: &[(&[f32], Shape)]| -> Result<Option<BitsCurve>, Error> {
        let kept: f64 = parts.iter().map(|(values, _)| sum_of_squares(values)).sum();
        let count: usize = parts.iter().map(|(values, _)| values.len()).sum();
        let sampled: Vec<(&[f32], Shape)> = parts.iter().map(|part| sample(*part, limit, start)).collect();
        let energy: f64 = sampled.iter().map(|(values, _)| sum_of_squares(values)).sum();
        if energy <= 0.0 || kept <= 0.0 {
            return Ok(None);
        }
        let is_whole = limit >= count;
        let mut errors = [0.0; COUNT];
        let mut bits = [0.0; COUNT];
        let len: usize = sampled.iter().map(|(values, _)| values.len()).sum();
        for (at, &choice) in CHOICES.iter().enumerate() {
            for &(values, shape) in &sampled {
                let (error, cost) = trial(uniform.with_bits(choice), values, shape, code, rng, is_whole)?;
                errors[at] += error / energy;
                bits[at] += cost / len as f64;
            }
        }
        let squares = sampled.iter().flat_map(|(values, _)| values.iter());
        let squares = squares.map(|value| f64::from(*value) * f64::from(*value));
        let fourth = squares.map(|square| square * square).sum::<f64>() / len as f64;
        let largest = sampled
            .iter()
            .flat_map(|(values, _)| values.iter())
            .fold(0.0f32, |most, value| most.max(value.abs()));
        let square = energy / len as f64;
        let whole = sum_of_squares(values) / values.len() as f64;
        Ok(Some(BitsCurve {
            errors,
            bits,
            shift: math::ln(kept / count as f64 / whole),
            peak: math::ln(f64::from(largest) / square.sqrt()),
            kurtosis: math::ln(fourth / (square * square)),
        }))
    };
    if is_kept(input) {
        return of(&[(values, input.tensor.shape)]);
    }
    let reduced = match input.chosen.reduce(&input.tensor, &mut None) {
        // Encoding falls back to the exact values.
        Err(Error::NotFinite(_)) => return Ok(None),
        reduced => reduced?,
    };
    let parts: Vec<(&[f32], Shape)> = reduced.parts.iter().map(|part| (&*part.values, part.shape)).collect();
    of(&parts)
}

/// At most `limit` neighboring values.
fn sample((values, shape): (&[f32], Shape), limit: usize, start: usize) -> (&[f32], Shape) {
    let range = neighbors(values.len(), limit, start as u64);
    let shape = if range.len() == values.len() {
        shape
    } else {
        Shape::row(limit)
    };
    (&values[range], shape)
}

/// Squared error and bits of `values` under `uniform`: coded if `is_whole`, else without the tables of the coder, which a sample
/// would overrate.
fn trial(
    uniform: Uniform,
    values: &[f32],
    shape: Shape,
    code: Code,
    rng: KeyedRng,
    is_whole: bool,
) -> Result<(f64, f64), Error> {
    if values.is_empty() {
        return Ok((0.0, 0.0));
    }
    let quantize = QuantizeSpec::Uniform(uniform);
    let mut bytes = Vec::new();
    let mut out = vec![0.0; values.len()];
    let size = quantize.method().encode(values, shape, code, rng, &mut bytes);
    let plane = Quantize::of(&quantize).plane(&mut Reader::new(&bytes), shape, code, rng)?;
    plane.open()?.read(&mut out)?;
    let pairs = values.iter().zip(&out);
    let error = pairs
        .map(|(value, out)| square(f64::from(*value) - f64::from(*out)))
        .sum();
    let bits = match (is_whole, code) {
        (true, _) => bytes.len() as f64,
        (false, Code::Pack) => size.plain as f64,
        (false, _) => size.bound,
    };
    Ok((error, 8.0 * bits))
}
