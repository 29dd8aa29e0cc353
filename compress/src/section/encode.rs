//! Encoder of a section: values to bytes.

use std::sync::Arc;

use crate::code::gaps::{encode_indices, support_bound};
use crate::code::method::{Code, CodeSpec};
use crate::error::Error;
use crate::finite::OVERFLOW_LIMIT;
use crate::quantize::QuantizeSpec;
use crate::quantize::recipe::Quantize;
use crate::recipe::Recipe;
use crate::reduce::form::{FEW, Reduction};
use crate::reduce::method::{Sends, TensorValues};
use crate::reduce::recipe::Reduce;
use crate::reduce::{auto, keep, support};
use crate::section::decode::Section;
use crate::section::input::{EncodedSection, Input};
use crate::sink::Sink;
use crate::stages::Stages;
use crate::threads::both;
use crate::wire::{Reader, Writer};

/// Encodes a tensor. Falls back to the exact values if they are shorter, or if a decoded value or the residual would
/// not be finite. `warm` is the second factor of the previous frame (the warm start of the power iteration) and is
/// replaced by the one of this frame.
pub(crate) fn encode(input: &Input<'_>, warm: &mut Option<Vec<f32>>) -> Result<EncodedSection, Error> {
    let tensor = &input.tensor;
    // No early exit, so that the loop vectorizes.
    let huge = tensor
        .values
        .iter()
        .fold(false, |any, value| any | (value.abs() > OVERFLOW_LIMIT));
    let mut best: Option<EncodedSection> = None;
    match reduce(input, warm) {
        Ok(reduced) if huge && !reduced.is_finite() => {}
        Err(Error::NotFinite(_)) if huge => {}
        reduced => {
            let reduced = reduced?;
            for &code in input.code.candidates() {
                let coded = write(tensor, &reduced, code);
                if best.as_ref().is_none_or(|best| coded.bytes.len() < best.bytes.len()) {
                    best = Some(coded);
                }
            }
        }
    }
    let most = 1 + tensor.values.len() * 4;
    match best {
        Some(best) if best.bytes.len() <= most && !(huge && overflows(tensor, &best.bytes)) => Ok(best),
        _ => {
            let exact = TensorValues {
                quantize: QuantizeSpec::Exact,
                ..*tensor
            };
            Ok(write(&exact, &keep::reduced(&exact), Code::Pack))
        }
    }
}

/// Whether decoding `section` fails or leaves a residual that is not finite.
fn overflows(tensor: &TensorValues<'_>, section: &[u8]) -> bool {
    let mut left = Left {
        values: tensor.values,
        finite: true,
    };
    let section = Section::read(&mut Reader::new(section), tensor.shape, tensor.rng);
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
}

fn reduce<'a>(input: &Input<'a>, warm: &mut Option<Vec<f32>>) -> Result<Reduction<'a>, Error> {
    let tensor @ &TensorValues { values, quantize, .. } = &input.tensor;
    // A tensor of zeros is sent as an empty support under every method, except the plain exact method, which must equal
    // FedAvg in fp32.
    let plain = input.chosen.sends == Sends::All && quantize == QuantizeSpec::Exact && input.code == CodeSpec::Pack;
    if !plain && values.iter().all(|value| value.to_bits() == 0) {
        return Ok(support::empty());
    }
    match &input.leading {
        Some(leading) => auto::split(
            tensor,
            leading,
            input.code.candidates().first().copied().unwrap_or_default(),
        ),
        // So is a tensor that the step of a budget quantizes to zeros.
        None if matches!(quantize, QuantizeSpec::DeadZone(zone) if zone.quantizes_to_zero(values)) => {
            Ok(support::empty())
        }
        None => input.chosen.reduce(tensor, warm),
    }
}

fn write(tensor: &TensorValues<'_>, reduced: &Reduction<'_>, code: Code) -> EncodedSection {
    let recipe = Recipe {
        reduce: Reduce::new(reduced.form, reduced.numbers),
        quantize: Quantize::of(&tensor.quantize),
        code,
    };
    let mut out = Vec::new();
    recipe.write(&mut Writer::new(&mut out));
    let mut stages = Stages {
        fp32: tensor.values.len() as u64 * 4,
        ..Stages::default()
    };
    let mut saved = 0.0;
    let mut known = Vec::new();
    let parts = reduced.parts.iter().filter(|part| !part.values.is_empty());
    for (at, part) in parts.enumerate() {
        let rng = tensor.rng.part(at as u64);
        let before = out.len();
        let values = |out: &mut Vec<u8>| match &part.plane {
            Some(plane) if plane.code == code => {
                out.extend_from_slice(&plane.bytes);
                (plane.size, Some(Arc::clone(&plane.known)))
            }
            // Without memory nobody asks for the values.
            _ if tensor.unbiased => {
                let quantize = tensor.quantize.with_zone(|zone| zone.after(before));
                (quantize.method().encode(&part.values, part.shape, code, rng, out), None)
            }
            _ => {
                let quantize = tensor.quantize.with_zone(|zone| zone.after(before));
                let (size, plane) = quantize.method().encode_known(&part.values, part.shape, code, rng, out);
                (size, plane)
            }
        };
        let (size, plane) = if let Some(support) = &part.support {
            stages.reduced += support.len() as u64 * 4;
            stages.quantized += support.len() as u64 * 4;
            stages.entropy_bound += support_bound(tensor.values.len(), support.len()) / 8.0;
            let threads = if support.len() < FEW { 1 } else { tensor.threads };
            let mut plane = Vec::new();
            let indices = || encode_indices(support, tensor.shape, code, &mut out);
            let ((), coded) = both(threads, indices, || values(&mut plane));
            out.append(&mut plane);
            coded
        } else {
            values(&mut out)
        };
        stages.reduced += part.values.len() as u64 * 4;
        stages.quantized += size.plain;
        stages.entropy_bound += size.bound;
        saved += size.saved;
        known.push(plane);
    }
    stages.coded = out.len() as u64;
    EncodedSection {
        bytes: out,
        saved,
        known,
        stages,
    }
}
