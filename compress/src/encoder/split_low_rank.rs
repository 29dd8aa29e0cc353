//! Whether a matrix costs less with its singular components apart from the rest.

use std::sync::Arc;

use crate::budget::curve::Curve;
use crate::encoder::task::EncodeTask;
use crate::quantize::QuantizeSpec;
use crate::reduce::components::{self, Components};
use crate::reduce::method::{Sends, TensorValues};

/// Takes as many components of the task's matrix apart as make `error + lambda * bits` least at `step`, if any do, and returns
/// the curve that it has then. `lambda` is what a bit is worth at that step. Nothing changes if what there is is best.
pub(crate) fn choose(task: &mut EncodeTask<'_>, curve: &Curve, step: f64) -> Option<Curve> {
    let input = &task.input;
    let TensorValues { values, shape, rng, .. } = input.tensor;
    if input.chosen.sends != Sends::Components || !components::may_pay(shape) {
        return None;
    }
    let components = Components::new(values, shape, task.warm.as_deref(), rng);
    *task.warm = Some(components.warm());
    let rank = components.paying(shape, step);
    if rank == 0 || input.leading.as_ref().is_some_and(|leading| leading.rank == rank) {
        return None;
    }
    let mut apart = input.clone();
    apart.leading = Some(Arc::new(components.leading(rank, shape.cols)));
    if let QuantizeSpec::DeadZone(zone) = &mut apart.tensor.quantize {
        // One step for all three planes, not one by the values of each.
        *zone = zone.with_step(step as f32);
    }
    let better = Curve::new(&apart, *task.ratio);
    let cost = |curve: &Curve| {
        let point = curve.at(step);
        point.error + components::WORTH * step * step * point.bits
    };
    if cost(&better) >= cost(curve) {
        return None;
    }
    task.input = apart;
    Some(better)
}
