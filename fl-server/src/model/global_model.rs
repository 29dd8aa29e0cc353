//! The state of the server's side of a model.

use std::sync::Arc;

use fl_compress::{BudgetWatch, Digest, Encoder, Layout, Memory, Spec};

use super::error::ModelError;
use super::optimizer::fedavg::{ServerOptimizer, strategy};
use crate::config::limits::Limits;
use crate::config::plan::{RunPlan, StrategySpec};

/// The global model, and what the server remembers between rounds.
#[derive(Debug)]
pub struct GlobalModel {
    pub(super) layout: Arc<Layout>,
    /// Shapes: `[layout.len()]`.
    pub(super) model: Vec<f32>,
    pub(super) version: u64,
    pub(super) digest: Digest,
    /// The encoder of steps: holds the server's residual.
    pub(super) encoder: Encoder,
    pub(super) watch: BudgetWatch,
    pub(super) strategy: Box<dyn ServerOptimizer>,
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

impl GlobalModel {
    /// Version 0. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// `Start` if `model` has another length or a value that is not finite, or the plan's downlink does not fit.
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
    pub fn roll_back(&mut self, version: u64, model: Vec<f32>, recorded: &Digest) -> Result<(), ModelError> {
        let digest = Digest::of_f32(&model);
        if digest != *recorded || model.len() != self.layout.len() {
            let text =
                format!("the model of the rollback to version {version} has digest {digest}, recorded is {recorded}");
            return Err(ModelError::Start(text));
        }
        self.forget().map_err(|e| ModelError::Start(e.to_string()))?;
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
    pub fn snapshot(&self) -> Result<Vec<u8>, ModelError> {
        let frame = fl_compress::snapshot(&self.layout, &self.model, self.version);
        frame.map_err(|e| ModelError::Start(e.to_string()))
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
}
