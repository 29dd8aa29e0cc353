//! The state of the server's side of a model, from round to round.

use std::sync::Arc;

use fl_compress::{BudgetWatch, Digest, Encoder, Layout, Spec};

use super::aggregate::References;
use super::aggregator::{self, Aggregator};
use super::decoded_updates::DecodedUpdates;
use super::error::ModelError;
use super::optimizer::{self, ServerOptimizer};
use crate::config::limits::Limits;
use crate::config::plan::{MethodSpec, RoundedVersions, RunPlan};

#[derive(Debug)]
pub struct GlobalModel {
    pub(super) layout: Arc<Layout>,
    /// Shapes: `[layout.len()]`.
    pub(super) model: Vec<f32>,
    pub(super) version: u64,
    pub(super) digest: Digest,
    /// Encodes model updates, and holds the server's residual.
    pub(super) encoder: Encoder,
    pub(super) watch: BudgetWatch,
    pub(super) aggregator: Box<dyn Aggregator>,
    /// Works on the trained values only.
    pub(super) optimizer: Box<dyn ServerOptimizer>,
    pub(super) seed: u64,
    /// Whether clients encode against the last model update (CAFe).
    pub(super) predicts: bool,
    /// Digest of the model update that made this version, if clients encode against it. `None` for version 0 and for the
    /// version of a rollback.
    pub(super) predictor: Option<Digest>,
    pub(super) limits: Limits,
    pub(super) rounded: Option<RoundedVersions>,
    /// The norms that the limits compared with in the last round to which they applied.
    pub(super) references: References,
    /// Encoder and optimizer are made from these, again after a rollback.
    specs: (Spec, MethodSpec),
    /// At most so many work on a round. No result depends on it.
    pub(super) threads: usize,
    /// Memory for the next aggregate, as fresh pages take longer than adding to them. Empty before the first round.
    pub(super) memory: Vec<f32>,
    /// The updates of the round that are decoded already.
    pub(super) decoded: Arc<DecodedUpdates>,
}

impl GlobalModel {
    /// Version 0. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// `Start` if `model` has another length or a value that is not finite, or if the plan's downlink does not
    /// fit the layout.
    pub fn initial(layout: Arc<Layout>, model: Vec<f32>, plan: &RunPlan) -> Result<Self, ModelError> {
        if model.len() != layout.len() {
            let why = format!("the model has {} values, its layout {}", model.len(), layout.len());
            return Err(ModelError::Start(why));
        }
        if !model.iter().all(|value| value.is_finite()) {
            return Err(ModelError::Start(
                "the initial model holds a value that is not finite".to_owned(),
            ));
        }
        let encoder = Encoder::new(Arc::clone(&layout), &plan.downlink);
        let encoder = encoder.map_err(|e| ModelError::Start(format!("compression.downlink: {e}")))?;
        let digest = Digest::of_f32(&model);
        let trained = layout.trained().len();
        Ok(Self {
            layout,
            model,
            version: 0,
            digest,
            encoder,
            watch: BudgetWatch::default(),
            aggregator: aggregator::build(&plan.aggregator)?,
            optimizer: optimizer::build(&plan.optimizer, trained)?,
            seed: plan.seed,
            predicts: plan.uplink.memory.predicts(),
            predictor: None,
            limits: plan.limits,
            rounded: plan.rounded,
            references: References::default(),
            specs: (plan.downlink.clone(), plan.optimizer.clone()),
            threads: 1,
            memory: Vec::new(),
            decoded: Arc::default(),
        })
    }

    /// Sets the most threads that close a round. Models and frames do not depend on it.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
        self.encoder.set_threads(self.threads);
    }

    /// Where the updates of the round may be put that are decoded already.
    pub(crate) fn decoded(&self) -> &Arc<DecodedUpdates> {
        &self.decoded
    }

    /// Rolls the model back: `model` becomes version `version`. Resets residual, optimizer state and reference norm,
    /// which belong to the rolled-back rounds. No model update leads to this version, so the next updates have no
    /// predictor. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// `Start` if the digest of `model` is not `recorded`.
    pub fn roll_back(&mut self, version: u64, model: Vec<f32>, recorded: &Digest) -> Result<(), ModelError> {
        let digest = Digest::of_f32(&model);
        if digest != *recorded || model.len() != self.layout.len() {
            let text =
                format!("the model of the rollback to version {version} has digest {digest}, recorded is {recorded}");
            return Err(ModelError::Start(text));
        }
        self.forget()?;
        self.decoded.clear();
        self.model = model;
        self.version = version;
        self.digest = digest;
        self.predictor = None;
        Ok(())
    }

    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The values. Shapes: `[layout.len()]`.
    pub fn model(&self) -> &[f32] {
        &self.model
    }

    /// Number of the newest version: 0, the last round closed, or that of a rollback.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What model updates have not carried yet; `None` without a residual. Shapes: `[layout.len()]`.
    pub fn residual(&self) -> Option<&[f32]> {
        self.encoder.residual()
    }

    pub(crate) fn rounded_versions(&self) -> Option<RoundedVersions> {
        self.rounded
    }

    /// Whether a short snapshot of this version should be kept: it was rounded for that.
    pub fn is_rounded(&self) -> bool {
        self.rounded.is_some_and(|rounded| rounded.at(self.version).is_some())
    }

    /// The whole model as one exact frame, for clients that hold none or too old a one. In a run that rounds versions, rounded
    /// tensors are short.
    ///
    /// # Errors
    /// `Start`: cannot happen, the model is finite and of its layout.
    pub fn snapshot(&self) -> Result<Vec<u8>, ModelError> {
        let frame = match self.rounded {
            Some(_) => fl_compress::rounded_snapshot(&self.layout, &self.model, self.version, self.threads),
            None => fl_compress::snapshot(&self.layout, &self.model, self.version),
        };
        frame.map_err(|e| ModelError::Start(e.to_string()))
    }

    /// Resets encoder, optimizer and reference norm to what they are at version 0: no residual, no momentum, nothing learned of
    /// earlier rounds.
    ///
    /// # Errors
    /// `Start`: cannot happen, both were made from the same specs before.
    pub fn forget(&mut self) -> Result<(), ModelError> {
        let encoder = Encoder::new(Arc::clone(&self.layout), &self.specs.0);
        self.encoder = encoder.map_err(|e| ModelError::Start(e.to_string()))?;
        self.encoder.set_threads(self.threads);
        self.optimizer = optimizer::build(&self.specs.1, self.layout.trained().len())?;
        self.references = References::default();
        Ok(())
    }
}
