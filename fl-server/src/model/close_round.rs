//! Closing a round: average, strategy, encoder, and the decoded frame applied to the model.

use std::fmt::{self, Display};
use std::sync::Arc;

use fl_compress::{
    BudgetWatch, Digest, Encoder, Frame, FrameHeader, FrameKind, Layout, Memory, OverBudget, Pending, Spec, Stages,
    Verdict,
};
use fl_proto::ClientId;

use super::optimizer::fedavg::{Strategy, strategy};
use super::sections::{Sections, fidelity};
use super::updates::{Average, average};
use crate::accounting::ledger::{Fidelity, Section};
use crate::config::limits::Limits;
use crate::config::plan::{RunPlan, StrategySpec};
use crate::state_machine::Contribution;

/// The model cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobalError {
    /// Rounds close in order.
    #[error("round {round} cannot follow version {version}")]
    Order {
        /// The round asked for.
        round: u64,
        /// The version that is there.
        version: u64,
    },
    /// A round without examples has no average.
    #[error("round {round} has no update")]
    Empty {
        /// The round.
        round: u64,
    },
    /// An accepted update cannot be read or decoded.
    #[error("the update of {client} in round {round}: {why}")]
    Frame {
        /// The round.
        round: u64,
        /// Whose.
        client: ClientId,
        /// What is wrong.
        why: String,
    },
    /// The step that updates were encoded against cannot be read or decoded.
    #[error("the step before round {round}, against which updates were encoded: {why}")]
    Predictor {
        /// The round.
        round: u64,
        /// What is wrong.
        why: String,
    },
    /// The step cannot be encoded: cannot happen, a step that does not fit is replaced by one of zeros.
    #[error("the step of round {round}: {why}")]
    Step {
        /// The round.
        round: u64,
        /// What is wrong.
        why: String,
    },
    /// The initial model or a checkpoint does not fit.
    #[error("{0}")]
    Start(String),
    /// Doing a closed round again gave something else than was recorded.
    #[error("round {round} done again gives {what} {found}, recorded is {recorded}")]
    Differs {
        /// The round.
        round: u64,
        /// `frame` or `model`.
        what: &'static str,
        /// Digest found.
        found: Digest,
        /// Digest recorded.
        recorded: Digest,
    },
}

/// What closing a round gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Stepped {
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

/// An update that counts for less than its sender claimed, because of the plan's limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Limited {
    /// Whose.
    pub client: ClientId,
    /// Examples claimed.
    pub claimed: u64,
    /// Examples that it counts with; 0 if it does not count.
    pub counted: f64,
    /// L2 norm of the decoded update.
    pub norm: f64,
    /// Norm that it is compared with.
    pub reference: f64,
    /// Factor of its values.
    pub scale: f64,
}

impl Limited {
    /// Whether it counts for less than half of what was claimed: honest updates differ by less.
    pub fn is_conspicuous(&self) -> bool {
        self.counted < 0.5 * self.claimed as f64 || self.scale < 0.5
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            claimed,
            counted,
            norm,
            reference,
            scale,
        } = self;
        if *counted == 0.0 {
            return write!(
                f,
                "the update of {client} does not count: its norm is {norm:.3e}, the median {reference:.3e}"
            );
        }
        write!(f, "the update of {client} counts with ")?;
        let counted = counted.round();
        if counted < *claimed as f64 {
            write!(f, "{counted} of the {claimed} examples that it claims")?;
        } else {
            write!(f, "its {claimed} examples")?;
        }
        if *scale < 1.0 {
            write!(
                f,
                " and {scale:.3} of its values: its norm is {norm:.3e}, the median {reference:.3e}"
            )?;
        }
        Ok(())
    }
}

/// The frame of a step, where its bytes went, and how faithful it is.
type Advanced = (Pending, Sections, Vec<Fidelity>);

/// The global model, and what the server remembers between rounds.
#[derive(Debug)]
pub struct Global {
    pub(super) layout: Arc<Layout>,
    /// Shapes: `[layout.len()]`.
    pub(super) model: Vec<f32>,
    pub(super) version: u64,
    pub(super) digest: Digest,
    /// The encoder of steps: holds the server's residual.
    pub(super) encoder: Encoder,
    pub(super) watch: BudgetWatch,
    pub(super) strategy: Box<dyn Strategy>,
    pub(super) seed: u64,
    /// Whether clients encode against the last step.
    pub(super) predicts: bool,
    /// Digest of the frame that made this version, if clients encode against it. None of version 0.
    pub(super) step: Option<Digest>,
    pub(super) limits: Limits,
    /// What norms of updates were compared with in the last round that was closed under limits, if any was not zero.
    pub(super) reference: Option<f64>,
    /// What encoder and strategy are made from.
    specs: (Spec, StrategySpec),
}

impl Global {
    /// Version 0. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// `Start` if `model` has another length or a value that is not finite, or the plan's downlink does not fit.
    pub fn initial(layout: Arc<Layout>, model: Vec<f32>, plan: &RunPlan) -> Result<Self, GlobalError> {
        if model.len() != layout.len() {
            let why = format!("the model has {} values, its layout {}", model.len(), layout.len());
            return Err(GlobalError::Start(why));
        }
        if !model.iter().all(|value| value.is_finite()) {
            return Err(GlobalError::Start(
                "the initial model holds a value that is not finite".to_owned(),
            ));
        }
        let encoder = Encoder::new(Arc::clone(&layout), &plan.downlink);
        let encoder = encoder.map_err(|e| GlobalError::Start(format!("compression.downlink: {e}")))?;
        let digest = Digest::of_f32(&model);
        Ok(Self {
            layout,
            model,
            version: 0,
            digest,
            encoder,
            watch: BudgetWatch::default(),
            strategy: strategy(&plan.strategy),
            seed: plan.seed,
            predicts: plan.uplink.memory == Memory::Cafe,
            step: None,
            limits: plan.limits,
            reference: None,
            specs: (plan.downlink.clone(), plan.strategy),
        })
    }

    /// The model of a version that a rollback made. What encoder, strategy and limits remembered belonged to the rounds that
    /// were taken back, and is forgotten; there is no step that updates could be encoded against. Shapes:
    /// `model: [layout.len()]`.
    ///
    /// # Errors
    /// `Start` if its digest is not `recorded`, or the downlink cannot be met, which cannot happen.
    pub fn roll_back(&mut self, version: u64, model: Vec<f32>, recorded: &Digest) -> Result<(), GlobalError> {
        let digest = Digest::of_f32(&model);
        if digest != *recorded || model.len() != self.layout.len() {
            let text =
                format!("the model of the rollback to version {version} has digest {digest}, recorded is {recorded}");
            return Err(GlobalError::Start(text));
        }
        self.forget().map_err(|e| GlobalError::Start(e.to_string()))?;
        (self.model, self.version, self.digest, self.step) = (model, version, digest, None);
        Ok(())
    }

    /// The model's tensors.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The values. Shapes: `[layout.len()]`.
    pub fn model(&self) -> &[f32] {
        &self.model
    }

    /// The rounds that made it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Digest of the values.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The whole model as one exact frame, for clients that hold none or too old a one.
    ///
    /// # Errors
    /// `Start`: cannot happen, a model is finite and of its layout.
    pub fn snapshot(&self) -> Result<Vec<u8>, GlobalError> {
        let frame = fl_compress::snapshot(&self.layout, &self.model, self.version);
        frame.map_err(|e| GlobalError::Start(e.to_string()))
    }

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
    ) -> Result<Stepped, GlobalError> {
        if round != self.version + 1 {
            return Err(GlobalError::Order {
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
                let failed = |e: fl_compress::Error| GlobalError::Step {
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
        Ok(Stepped {
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

    /// Makes encoder and strategy as they are at version 0: no residual, nothing learned of earlier rounds.
    ///
    /// # Errors
    /// The encoder's: cannot happen, it was made from the same spec before.
    pub fn forget(&mut self) -> Result<(), fl_compress::Error> {
        self.encoder = Encoder::new(Arc::clone(&self.layout), &self.specs.0)?;
        self.strategy = strategy(&self.specs.1);
        self.reference = None;
        Ok(())
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
