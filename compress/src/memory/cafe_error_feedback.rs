//! CAFe with a residual: the frame carries `C(v)` with `v = delta - predictor + decay * residual`, the receiver adds
//! `predictor + C(v)`, and the new residual is `v - C(v)`.
//!
//! With decay 1 nothing is lost: the sum of the received updates plus the residual equals the sum of the deltas. If a frame
//! is rejected, its predictor does not reach the receiver either, so both return to the residual. The predictor is kept with
//! the residual for this case: a restarted sender may not have the model update any more.

use std::ops::Range;

use crate::error::Error;
use crate::fidelity::{Products, Relation, dot};
use crate::finite::{OVERFLOW_LIMIT, update_not_finite};
use crate::frame::view::Frame;
use crate::memory::error_feedback::{Decay, Residual};
use crate::memory::method::{CodedFrame, Encodes, Entry, MemoryInfo, State};
use crate::pending::Ack;

pub(crate) const METHOD: Entry = Entry {
    info: MemoryInfo {
        name: "cafe+error-feedback",
        about: "Sends the difference from the last model update plus the unsent residual of earlier differences.",
        examples: &[
            "['cafe', 'error-feedback']",
            "['cafe', { error-feedback = { decay = 0.5 } }]",
        ],
        encodes: Encodes::FromModelUpdate,
        has_residual: true,
    },
    parameters: Some("{ decay = .. }"),
    kind: Some(3),
    vectors: 2,
};

pub(crate) type Table = crate::memory::error_feedback::Table;

pub(crate) fn state(decay: Decay, len: usize) -> Box<dyn State> {
    Box::new(PredictedResidual {
        residual: Residual::new(decay, len),
        predictor: vec![0.0; len],
    })
}

#[derive(Debug)]
struct PredictedResidual {
    residual: Residual,
    /// Trained values of the pending frame's predictor; zeros if that frame has none. Without a pending frame zeros, or unspecified after a restart.
    predictor: Vec<f32>,
}

impl State for PredictedResidual {
    fn entry(&self) -> &'static Entry {
        &METHOD
    }

    fn predicted(&mut self, predictor: Option<&Frame<'_>>) -> Result<(), Error> {
        self.predictor.fill(0.0);
        let added = predictor.map_or(Ok(()), |frame| frame.accumulate_trained(1.0, &mut self.predictor));
        added.inspect_err(|_| self.predictor.fill(0.0))
    }

    /// `delta` becomes the previous residual.
    fn absorb(&mut self, delta: &mut [f32], trained: Range<usize>, threads: usize) -> Result<(), Error> {
        let absorbed = self.residual.absorb(delta, trained, threads);
        absorbed.inspect_err(|_| self.predictor.fill(0.0))
    }

    fn undo(&mut self, delta: &[f32]) {
        self.predictor.fill(0.0);
        self.residual.undo(delta);
    }

    fn input<'v>(&'v self, delta: &'v [f32]) -> &'v [f32] {
        self.residual.input(delta)
    }

    fn waited<'v>(&'v self, delta: &'v [f32]) -> Option<&'v [f32]> {
        Some(delta)
    }

    /// With predictor `p`, residual before `e` and `w = p - decay e`, the raw update is `v + w`.
    fn encoded(&mut self, coded: CodedFrame<'_>, delta: &mut [f32]) -> Result<(Relation, Vec<Products>), Error> {
        let values = &mut self.residual.values;
        let predictor = &self.predictor;
        // A rejected frame adds the predictor to `v`. Smaller magnitudes cannot overflow: next to a magnitude that
        // could, they vanish in rounding.
        let is_small = predictor.iter().all(|value| value.abs() <= OVERFLOW_LIMIT);
        let mut sums = values.iter().zip(predictor);
        if !is_small && !sums.all(|(value, predictor)| (value + predictor).is_finite()) {
            return Err(update_not_finite());
        }
        let Some(_) = coded.predicted else {
            return self.residual.encoded(coded, delta);
        };
        let decay = self.residual.decay;
        let before = |values: &[f32], range: Range<usize>| dot(&values[range.clone()], &predictor[range]);
        let of_sections = |of: &dyn Fn(Range<usize>) -> f64| -> Vec<f64> {
            let sections = coded.frame.sections();
            sections
                .map(|section: crate::SectionInfo<'_>| {
                    let ranges = section
                        .tensors
                        .iter()
                        .map(|tensor| tensor.offset..tensor.offset + tensor.len);
                    ranges.map(of).sum()
                })
                .collect()
        };
        let (pv, pe) = (
            of_sections(&|range| before(values, range)),
            of_sections(&|range| before(delta, range)),
        );
        let pp = of_sections(&|range| before(predictor, range));
        // The residual before is in `delta`, and needed to undo this encoding: restored below.
        let weights = delta
            .iter()
            .zip(predictor)
            .map(|(residual, predictor)| predictor - decay * residual);
        let other: Vec<f32> = weights.collect();
        let mut products = coded.frame.measure(coded.threads, true, values, Some(&other))?;
        let left = of_sections(&|range| before(values, range));
        let sums = pv.into_iter().zip(pe).zip(pp).zip(left);
        for (products, (((pv, pe), pp), left)) in products.iter_mut().zip(sums) {
            products.xd = pv - left;
            products.xr = pv + pp - f64::from(decay) * pe;
            products.xx = pp;
        }
        Ok((Relation::new(1.0, 1.0, 0.0), products))
    }

    fn settled(&mut self, frame: &Frame<'_>, ack: Ack) -> Result<(), Error> {
        if ack == Ack::Rejected {
            let pairs = self.residual.values.iter_mut().zip(&self.predictor);
            pairs.for_each(|(residual, predictor)| *residual += predictor);
        }
        self.predictor.fill(0.0);
        self.residual.settled(frame, ack)
    }

    fn vectors(&self) -> Vec<&[f32]> {
        vec![&self.residual.values, &self.predictor]
    }

    fn vectors_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.residual.values, &mut self.predictor]
    }
}
