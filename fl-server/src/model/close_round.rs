//! Closing a round: aggregate, optimize, encode, and apply the decoded frame to the model.

use std::fmt::Display;

use fl_compress::{Ack, Digest, EncodeOptions, Frame, FrameHeader, FrameKind, OverBudget, Pending};

use super::aggregate::{Aggregate, Round, aggregate};
use super::error::ModelError;
use super::global_model::GlobalModel;
use super::sections::{Sections, entropies, fidelity};
use crate::accounting::ledger::{Fidelity, Section};
use crate::state_machine::Contribution;
use crate::storage::record::{Limited, RecordedStep};

#[derive(Debug, Clone, PartialEq)]
pub struct RoundResult {
    /// The frame of the model update, for every client.
    pub frame: Vec<u8>,
    pub step: RecordedStep,
    /// Where the bytes of the updates' frames went.
    pub uplink: Vec<Section>,
    /// Where the bytes of the model update's frame went.
    pub downlink: Vec<Section>,
    /// Entropy of the energy of each tensor, by its place in the layout: of the aggregate of the updates.
    pub uplink_entropies: Vec<(u32, f64)>,
    /// The same of what the round changed in the model, rounding included.
    pub downlink_entropies: Vec<(u32, f64)>,
    pub limited: Vec<Limited>,
    /// Whether the updates change nothing: all are zero.
    pub is_zero: bool,
    /// How faithful `frame` is, in the order of the sections' first tensors; empty if it has too many sections.
    pub fidelity: Vec<Fidelity>,
    /// Why the round's aggregate was not used, if it was not: the model update is zero then.
    pub unused: Option<String>,
    /// How far the frame exceeds its budget, where [`BudgetWatch`](fl_compress::BudgetWatch) reports it.
    pub over_budget: Option<OverBudget>,
}

/// A model update that is applied.
struct ModelUpdate {
    pending: Pending,
    sections: Sections,
    fidelity: Vec<Fidelity>,
    /// Of its tensors, by their places.
    entropies: Vec<(u32, f64)>,
}

impl GlobalModel {
    /// Makes the next version of the model from the updates of the round: trained values by aggregator and optimizer,
    /// buffers by the aggregator alone, counters by the largest; each update is scaled down to the limits of
    /// the plan. `read` replaces a buffer by the bytes of a frame: of an update, or of the previous model
    /// update if updates were encoded against it. Clients get the frame that is applied here, so every replica has the
    /// same bits. The result depends only on the earlier rounds and the set of updates.
    ///
    /// A model update that would leave a non-finite value in model or residual is replaced by zeros, since the round
    /// would otherwise fail again at every restart; residual and optimizer state are reset. Updates within
    /// [`RunPlan::largest_value`](crate::RunPlan::largest_value) can cause this only by a residual that grows without
    /// bound.
    ///
    /// # Errors
    /// `Order`, `Empty`, `Frame`, `Predictor`; nothing has changed then. `Encode` cannot happen.
    pub fn close<E: Display>(
        &mut self,
        round: u64,
        updates: &[Contribution],
        mut read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<RoundResult, ModelError> {
        if round != self.version + 1 {
            return Err(ModelError::Order {
                round,
                version: self.version,
            });
        }
        let from = Round {
            layout: &self.layout,
            round,
            updates,
            predictor: self.predictor,
            limits: &self.limits,
            references: self.references,
            threads: self.threads,
            decoded: &self.decoded,
        };
        let mut read = |digest: &Digest, bytes: &mut Vec<u8>| read(digest, bytes).map_err(|e| e.to_string());
        let Aggregate {
            values: mut update,
            sections: uplink,
            limited,
            references,
        } = aggregate(
            self.aggregator.as_ref(),
            &from,
            &mut read,
            std::mem::take(&mut self.memory),
        )?;
        self.references = references;
        let is_zero = update.iter().all(|value| *value == 0.0);
        let uplink_entropies = entropies(&self.layout, &uplink, |at| update[at]);
        self.optimizer.update(round, &mut update[self.layout.trained()]);
        self.bound_counters(&mut update);
        self.keep_signs(&mut update);
        let mut advanced = self.advance(round, &mut update);
        let unused = advanced.as_ref().err().map(ToString::to_string);
        if unused.is_some() {
            self.forget()?;
            update.fill(0.0);
            advanced = self.advance(round, &mut update);
        }
        let ModelUpdate {
            pending,
            sections: downlink,
            fidelity,
            entropies: downlink_entropies,
        } = advanced.map_err(|e| ModelError::Encode {
            round,
            why: e.to_string(),
        })?;
        self.version = round;
        self.predictor = self.predicts.then_some(pending.digest);
        self.digest = Digest::of_f32(&self.model);
        self.decoded.clear();
        self.memory = update;
        Ok(RoundResult {
            over_budget: self.watch.look(&pending),
            step: RecordedStep {
                frame: pending.digest,
                frame_len: pending.frame.len() as u64,
                stages: pending.stages,
                model: self.digest,
            },
            frame: pending.frame,
            uplink: uplink.into_vec(),
            downlink: downlink.into_vec(),
            uplink_entropies,
            downlink_entropies,
            limited,
            is_zero,
            fidelity,
            unused,
        })
    }

    /// Bounds the changes of counters in `update` so that the counters stay integers that `f32` holds exactly.
    fn bound_counters(&self, update: &mut [f32]) {
        let counters = self.layout.counters();
        for (change, value) in update[counters.clone()].iter_mut().zip(&self.model[counters]) {
            let after = (value + *change).round_ties_even().clamp(-MAX_COUNT, MAX_COUNT);
            *change = after - value;
        }
    }

    /// Ends a buffer at zero that only rounding carried beyond: the mean of variances that all fell to nearly 0 is not below it.
    fn keep_signs(&self, update: &mut [f32]) {
        /// Above what the sum of the clients' weights is off by.
        const ROUNDING: f32 = 1e-6;
        let buffers = self.layout.buffers();
        for (change, value) in update[buffers.clone()].iter_mut().zip(&self.model[buffers]) {
            let after = value + *change;
            if after * value < 0.0 && after.abs() <= ROUNDING * value.abs() {
                *change = -value;
            }
        }
    }

    /// Encodes the model update and applies the decoded frame to the model, which is rounded if the run rounds this version:
    /// what that removes joins the residual. Shapes: `update: [layout.len()]`; overwritten as scratch.
    ///
    /// # Errors
    /// `NotFinite` if a value of the model update, residual or new model is not; then the model is as it was, and the encoder is
    /// unusable.
    fn advance(&mut self, round: u64, update: &mut Vec<f32>) -> Result<ModelUpdate, fl_compress::Error> {
        let header = FrameHeader {
            kind: FrameKind::ModelUpdate,
            round,
            seed: seed(self.seed, round),
        };
        let rounding = self.rounded.and_then(|rounded| rounded.at(round));
        let options = EncodeOptions {
            buffers: Some(&self.model[self.layout.buffers()]),
            rounding,
            ..EncodeOptions::default()
        };
        let pending = self.encoder.encode_with(options, update, header)?;
        // Every client applies the frame in the end, so it is never refused.
        self.encoder.settle(&pending, Ack::Accepted)?;
        update.copy_from_slice(&self.model);
        let frame = Frame::parse(&pending.frame, &self.layout)?;
        let values = self.decoded.apply(&frame, self.predicts, update)?;
        if let Some(rounding) = rounding {
            let mut removed = update.clone();
            rounding.round(&self.layout, update);
            removed
                .iter_mut()
                .zip(&*update)
                .for_each(|(sum, rounded)| *sum -= rounded);
            self.encoder.keep_back(&removed)?;
        }
        let mut sections = Sections::default();
        sections.add(&super::sections::sections(&frame, values.nonzeros()));
        let fidelity = fidelity(&frame, &pending.fidelity);
        let entropies = entropies(&self.layout, &sections, |at| update[at] - self.model[at]);
        for (values, what) in [
            (Some(update.as_slice()), "model"),
            (self.encoder.residual(), "server residual"),
        ] {
            if !values.unwrap_or_default().iter().all(|value| value.is_finite()) {
                return Err(fl_compress::Error::NotFinite(format!("value of the {what}")));
            }
        }
        std::mem::swap(&mut self.model, update);
        if self.predicts {
            self.decoded.keep_model_update(pending.digest, values);
        }
        Ok(ModelUpdate {
            pending,
            sections,
            fidelity,
            entropies,
        })
    }
}

/// Largest magnitude of a counter: `f32` holds every integer up to here.
const MAX_COUNT: f32 = 16_777_216.0;

/// The seed of a model update's encoding: differs by run and round.
fn seed(run: u64, round: u64) -> u64 {
    let mut bytes = *b"step\0\0\0\0................";
    bytes[8..16].copy_from_slice(&run.to_le_bytes());
    bytes[16..].copy_from_slice(&round.to_le_bytes());
    Digest::of(&bytes).short()
}
