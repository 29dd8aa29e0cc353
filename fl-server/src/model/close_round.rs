//! Closing a round: average, strategy, encoder, and the decoded frame applied to the model.

use std::fmt::Display;

use fl_compress::{Digest, Frame, FrameHeader, FrameKind, OverBudget, Pending, Stages, Verdict};

use super::error::ModelError;
use super::global_model::GlobalModel;
use super::limited::Limited;
use super::sections::{Sections, fidelity};
use super::updates::{Average, average};
use crate::accounting::ledger::{Fidelity, Section};
use crate::state_machine::Contribution;

/// What closing a round gave.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundResult {
    /// The frame of the step, for every client.
    pub frame: Vec<u8>,
    /// Its digest.
    pub digest: Digest,
    /// Its bytes after each stage.
    pub stages: Stages,
    /// Digest of the new model.
    pub model: Digest,
    /// Where the bytes of the updates' frames went.
    pub uplink: Vec<Section>,
    /// Where those of the step's frame went.
    pub downlink: Vec<Section>,
    /// Updates that count for less than their sender claimed.
    pub limited: Vec<Limited>,
    /// How faithful the step's frame is, in the order of the sections' first tensors; empty if it has too many sections.
    pub fidelity: Vec<Fidelity>,
    /// Why the round's average was not used, if it was not: the step is zero then.
    pub unused: Option<String>,
    /// That the step's frame takes more than its budget asks for, where that is news.
    pub over_budget: Option<OverBudget>,
}

/// The frame of a step, where its bytes went, and how faithful it is.
type Advanced = (Pending, Sections, Vec<Fidelity>);

impl GlobalModel {
    /// Makes the next version of the model from the round's updates, each counting for what the plan's limits leave of it
    /// if `limited`. `read` replaces a buffer by the bytes of a frame: of an update, or of the step before, if updates were
    /// encoded against it. The step that clients get and the step applied here are the same decoded frame. The result
    /// depends on nothing but the earlier rounds and the set of updates.
    ///
    /// A step that would leave a value of model or residual that is not finite is not made, since the round would fail
    /// again at every restart: the step is zero then, and what encoder and strategy remember is forgotten. Updates within
    /// [`RunPlan::largest_value`] come to that only by way of a residual that grows without end.
    ///
    /// # Errors
    /// `Order`, `Empty`, `Frame`, `Predictor`; nothing has changed then. `Step` cannot happen.
    pub fn close<E: Display>(
        &mut self,
        round: u64,
        updates: &[Contribution],
        limited: bool,
        read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<RoundResult, ModelError> {
        if round != self.version + 1 {
            return Err(ModelError::Order {
                round,
                version: self.version,
            });
        }
        let limits = limited.then_some((&self.limits, self.reference));
        let Average {
            values: mut step,
            sections: uplink,
            limited,
            reference,
        } = average(&self.layout, round, updates, self.step.as_ref(), limits, read)?;
        self.reference = reference;
        self.strategy.step(round, &mut step);
        let ((pending, downlink, fidelity), unused) = match self.advance(round, &mut step) {
            Ok(stepped) => (stepped, None),
            Err(why) => {
                let failed = |e: fl_compress::Error| ModelError::Step {
                    round,
                    why: e.to_string(),
                };
                self.forget().map_err(failed)?;
                step.fill(0.0);
                let stepped = self.advance(round, &mut step).map_err(failed)?;
                (stepped, Some(why.to_string()))
            }
        };
        self.version = round;
        self.step = self.predicts.then_some(pending.digest);
        self.digest = Digest::of_f32(&self.model);
        Ok(RoundResult {
            over_budget: self.watch.look(&pending),
            frame: pending.frame,
            digest: pending.digest,
            stages: pending.stages,
            model: self.digest,
            uplink: uplink.into_vec(),
            downlink: downlink.into_vec(),
            limited,
            fidelity,
            unused,
        })
    }

    /// Encodes the step and applies the decoded frame to the model. Shapes: `step: [layout.len()]`; overwritten as
    /// scratch.
    ///
    /// # Errors
    /// `NotFinite` if a value of step, residual or new model is not; then the model is as it was, and the encoder is
    /// unusable.
    fn advance(&mut self, round: u64, step: &mut Vec<f32>) -> Result<Advanced, fl_compress::Error> {
        let header = FrameHeader {
            kind: FrameKind::Step,
            round,
            seed: seed(self.seed, round),
        };
        let pending = self.encoder.encode(step, header)?;
        // Every client applies the frame in the end, so it is never refused.
        self.encoder.settle(&pending, Verdict::Accepted)?;
        step.copy_from_slice(&self.model);
        let mut sections = Sections::default();
        let frame = Frame::parse(&pending.frame, &self.layout)?;
        sections.accumulate(&frame, 1.0, step)?;
        let fidelity = fidelity(&frame, &pending.fidelity);
        for (values, what) in [
            (Some(step.as_slice()), "model"),
            (self.encoder.residual(), "server residual"),
        ] {
            if !values.unwrap_or_default().iter().all(|value| value.is_finite()) {
                return Err(fl_compress::Error::NotFinite(format!("value of the {what}")));
            }
        }
        std::mem::swap(&mut self.model, step);
        Ok((pending, sections, fidelity))
    }
}

/// The seed of a step's encoding: differs by run and round.
fn seed(run: u64, round: u64) -> u64 {
    let mut bytes = *b"step\0\0\0\0................";
    bytes[8..16].copy_from_slice(&run.to_le_bytes());
    bytes[16..].copy_from_slice(&round.to_le_bytes());
    Digest::of(&bytes).short()
}
