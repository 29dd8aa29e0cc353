//! Decides whether to split singular components off a matrix.

use std::sync::Arc;

use crate::budget::curve::Curve;
use crate::encoder::task::EncodeTask;
use crate::quantize::QuantizeSpec;
use crate::quantize::dead_zone::WORTH;
use crate::reduce::components::{self, Components};
use crate::reduce::method::{Sends, TensorValues};
use crate::section::encode::encode;
use crate::section::input::Input;

// Matrices of at most this many values are coded both ways to decide: the observed ratio of the curve is that of the
// way taken last, and context coding gains less on factors than on the values.
const CODED: usize = 1 << 14;
// Components per component more or less at which a split stays.
const NEAR: usize = 8;

/// Splits off the number of components that minimizes `error + lambda * bits` at `step`, with `lambda` the value of a
/// bit at that step, and returns the new curve, of points up to `enough` bits. Changes nothing and returns `None` if the current split is the best.
pub(crate) fn choose(task: &mut EncodeTask<'_>, curve: &Curve, step: f64, enough: f64) -> Option<Curve> {
    let input = &task.input;
    let TensorValues { values, shape, rng, .. } = input.tensor;
    if input.chosen.sends != Sends::Components || !components::may_pay(shape) {
        return None;
    }
    let components = match task.components.take() {
        Some(found) => found.widened(values, shape, step, rng),
        None => Components::new(values, shape, step, task.warm.as_deref(), rng),
    };
    let components = task.components.insert(components);
    let rank = components.paying(shape, step);
    *task.warm = Some(components.warm(rank));
    if rank == 0
        || input
            .leading
            .as_ref()
            .is_some_and(|leading| is_near(leading.rank, rank))
    {
        return None;
    }
    let mut apart = input.clone();
    apart.leading = Some(Arc::new(components.leading(rank, shape.cols)));
    if let QuantizeSpec::DeadZone(zone) = &mut apart.tensor.quantize {
        // All three planes share one absolute step, instead of steps relative to the values of each.
        *zone = zone.with_step(step as f32);
    }
    let better = Curve::weighted(&apart, *task.ratio, task.weight, enough);
    let cost = |curve: &Curve, input: &Input<'_>| {
        let point = curve.at(step);
        let bits = if shape.len() > CODED {
            point.bits
        } else {
            coded_bits(&curve.with_knob(input, step))
        };
        point.error + WORTH * step * step * bits
    };
    if cost(&better, &apart) >= cost(curve, input) {
        return None;
    }
    task.input = apart;
    Some(better)
}

/// Whether another split would gain nothing: components at the limit are hardly worth their bits.
fn is_near(now: usize, better: usize) -> bool {
    now.abs_diff(better) <= better / NEAR
}

/// Bits of the section of `input`; infinite if it cannot be encoded.
fn coded_bits(input: &Input<'_>) -> f64 {
    encode(input, &mut None).map_or(f64::INFINITY, |section| 8.0 * section.bytes.len() as f64)
}
