//! Whether a matrix costs less with its singular components apart from the rest.

use std::sync::Arc;

use crate::budget::curve::Curve;
use crate::encoder::task::Job;
use crate::quantize::QuantizeSpec;
use crate::reduce::Selection;
use crate::reduce::components::{self, Components};

/// Takes as many components of the job's matrix apart as make `error + lambda * bits` least at `step`, if any do, and returns
/// the curve that it has then. `lambda` is what a bit is worth at that step. Nothing changes if what there is is best.
pub(crate) fn choose(job: &mut Job<'_>, curve: &Curve, step: f64) -> Option<Curve> {
    let input = &job.input;
    if input.selection != Selection::Components || !components::may_pay(input.shape) {
        return None;
    }
    let components = Components::new(input.values, input.shape, job.warm.as_deref(), input.draws);
    *job.warm = Some(components.warm());
    let rank = components.paying(input.shape, step);
    if rank == 0 || input.leading.as_ref().is_some_and(|leading| leading.rank == rank) {
        return None;
    }
    let mut apart = input.clone();
    apart.leading = Some(Arc::new(components.leading(rank, input.shape.cols)));
    if let QuantizeSpec::DeadZone(zone) = &mut apart.quantize {
        // One step for all three planes, not one by the values of each.
        *zone = zone.with_step(step as f32);
    }
    let better = Curve::new(&apart, *job.ratio);
    let cost = |curve: &Curve| {
        let point = curve.at(step);
        point.error + components::WORTH * step * step * point.bits
    };
    if cost(&better) >= cost(curve) {
        return None;
    }
    job.input = apart;
    Some(better)
}
