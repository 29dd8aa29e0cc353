//! Settings of local training, as run.toml has them and in range.

use fl_compress::SpaceSpec;
use serde::{Deserialize, Serialize};

use super::optimizer::OptimizerSpec;
use super::range::within;
use super::schedule::{Decay, Schedule, Span};
use crate::error::ProtocolError;
use crate::extra::Extra;

/// How long a client trains in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Passes over the client's examples.
    Epochs(u32),
    /// SGD steps, independent of the number of examples.
    Steps(u32),
}

/// What becomes of the optimizer's moments at the end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum StatePolicy {
    /// They start at zero in every round.
    #[default]
    Fresh,
    /// Each client keeps its own for its next round.
    Kept,
}

/// Type of the operands of matrix products and convolutions during local training on a GPU. Weights, gradients, moments and
/// all other operations are float32; on a CPU, the products are too (Micikevicius et al. 2018).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// float32.
    #[default]
    F32,
    /// float32, of which a multiplication takes 10 bits of the fraction (NVIDIA's TF32).
    Tf32,
    /// bfloat16.
    Bf16,
}

/// Settings of local training. Every field is checked: a `Training` cannot be out of range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Training {
    /// Epochs or steps.
    pub length: Length,
    /// Examples a step, 1 to 65,536.
    pub batch_size: u32,
    /// Most examples of a step that are computed at once, 1 to `batch_size`; `None`: all of them.
    pub micro_batch: Option<u32>,
    /// Type of the operands of products on a GPU.
    pub precision: Precision,
    /// The optimizer of the steps.
    pub optimizer: OptimizerSpec,
    /// What becomes of its moments at the end of a round.
    pub state: StatePolicy,
    /// Learning rate of round 1, finite and above 0.
    pub learning_rate: f32,
    /// How the rate changes with the round.
    pub schedule: Schedule,
    /// Steps in which the rate rises to its full value, 0 to 1,000,000; at most the steps of the span, if these are known.
    pub warmup: u32,
    /// How the rate changes after the warm-up.
    pub decay: Decay,
    /// Factor of the rate at the end of the decay, 0 to 1; 0 without decay.
    pub floor: f32,
    /// The steps that warm-up and decay span.
    pub span: Span,
    /// Momentum of SGD, 0 to below 1; 0 with another optimizer.
    pub momentum: f32,
    /// SGD: L2 penalty added to the gradient. AdamW and Muon: decoupled decay, `p -= rate * decay * p`. 0 or above.
    pub weight_decay: f32,
    /// Largest L2 norm of one step's gradient over all tensors; `None`: no clipping.
    pub clip_norm: Option<f32>,
    /// Weight mu of FedProx's proximal term (Li et al. 2020, eq. 2), 0 for none.
    pub proximal: f32,
    /// The part of the model that is trained; `None`: all of it.
    pub space: Option<SpaceSpec>,
}

/// The `[train]` table of a run.toml.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct TrainTable {
    /// Settings of local training.
    pub training: Training,
    /// `[train.extra]`, which is passed to trainers.
    pub extra: Extra,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            length: Length::Epochs(1),
            batch_size: 32,
            micro_batch: None,
            precision: Precision::F32,
            optimizer: OptimizerSpec::Sgd,
            state: StatePolicy::Fresh,
            learning_rate: 0.05,
            schedule: Schedule::Constant,
            warmup: 0,
            decay: Decay::Constant,
            floor: 0.0,
            span: Span::Round,
            momentum: 0.0,
            weight_decay: 0.0,
            clip_norm: None,
            proximal: 0.0,
            space: None,
        }
    }
}

impl Training {
    /// The same settings if every field is in range.
    pub(crate) fn checked(self) -> Result<Self, ProtocolError> {
        let (Length::Epochs(length) | Length::Steps(length)) = self.length;
        within(
            "epochs",
            length as f32,
            (1..=1_000_000).contains(&length),
            "1 to 1000000 epochs or steps",
        )?;
        let batch = self.batch_size;
        within("batch_size", batch as f32, (1..=65_536).contains(&batch), "1 to 65536")?;
        if let Some(micro) = self.micro_batch {
            let ok = (1..=batch).contains(&micro);
            within("micro_batch", micro as f32, ok, "1 to batch_size")?;
        }
        self.optimizer.check()?;
        let positive = |x: f32| x.is_finite() && x > 0.0;
        within(
            "learning_rate",
            self.learning_rate,
            positive(self.learning_rate),
            "finite and above 0",
        )?;
        within(
            "momentum",
            self.momentum,
            (0.0..1.0).contains(&self.momentum),
            "0 to below 1",
        )?;
        if self.momentum != 0.0 && self.optimizer != OptimizerSpec::Sgd {
            let why = format!(
                "{} is a setting of sgd; {} has its own, such as optimizer = {}",
                self.momentum,
                self.optimizer.name(),
                match self.optimizer {
                    OptimizerSpec::Muon(_) => "{ muon = { momentum = 0.95 } }",
                    _ => "{ adamw = { beta1 = 0.9 } }",
                }
            );
            return Err(ProtocolError::invalid("momentum", why));
        }
        let decay = self.weight_decay;
        let mu = self.proximal;
        within(
            "weight_decay",
            decay,
            decay.is_finite() && decay >= 0.0,
            "finite and 0 or above",
        )?;
        within("proximal", mu, mu.is_finite() && mu >= 0.0, "finite and 0 or above")?;
        if let Some(norm) = self.clip_norm {
            within("clip_norm", norm, positive(norm), "finite and above 0")?;
        }
        if let Schedule::Step { every, factor } = self.schedule {
            within("schedule.every", every as f32, every >= 1, "at least 1")?;
            within(
                "schedule.factor",
                factor,
                factor > 0.0 && factor <= 1.0,
                "above 0 and at most 1",
            )?;
        }
        if let Some(space) = self.space {
            let checked = space.checked();
            checked.map_err(|why| ProtocolError::invalid("space", why.to_string()))?;
            if space.blocks() > 1 && self.state == StatePolicy::Kept {
                let why = "\"kept\" needs the same values in every round, and `space.blocks` trains others in each; remove one of the two";
                return Err(ProtocolError::invalid("state", why));
            }
        }
        self.check_warmup_and_decay()?;
        Ok(self)
    }

    fn check_warmup_and_decay(&self) -> Result<(), ProtocolError> {
        let warmup = self.warmup;
        within("warmup", warmup as f32, warmup <= 1_000_000, "0 to 1000000")?;
        if let (Length::Steps(steps), Span::Round) = (self.length, self.span)
            && warmup > steps
        {
            let why = format!("{warmup} must be at most the {steps} steps of a round, or set span = \"run\"");
            return Err(ProtocolError::invalid("warmup", why));
        }
        within("floor", self.floor, (0.0..=1.0).contains(&self.floor), "0 to 1")?;
        if self.floor != 0.0 && self.decay == Decay::Constant {
            let why = format!(
                "{} has no effect without a decay; set decay = \"cosine\" or \"linear\"",
                self.floor
            );
            return Err(ProtocolError::invalid("floor", why));
        }
        Ok(())
    }
}

/// The `[train]` table as written: `epochs` or `steps`; every other key has a default.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    epochs: Option<u32>,
    steps: Option<u32>,
    batch_size: u32,
    /// Always written.
    learning_rate: Option<f32>,
    #[serde(skip_serializing_if = "is_default")]
    schedule: Schedule,
    momentum: f32,
    weight_decay: f32,
    clip_norm: Option<f32>,
    proximal: f32,
    // What a minor version adds is written only where it differs from its default: this text identifies a run, and an older client
    // refuses a key that it does not know.
    #[serde(skip_serializing_if = "is_default")]
    optimizer: OptimizerSpec,
    #[serde(skip_serializing_if = "is_default")]
    state: StatePolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_batch: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    precision: Precision,
    #[serde(skip_serializing_if = "is_default")]
    warmup: u32,
    #[serde(skip_serializing_if = "is_default")]
    decay: Decay,
    #[serde(skip_serializing_if = "is_default")]
    floor: f32,
    #[serde(skip_serializing_if = "is_default")]
    span: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<SpaceSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Default for Raw {
    fn default() -> Self {
        let mut raw = Self::from(Training::default());
        // What depends on another key is absent.
        (raw.epochs, raw.learning_rate) = (None, None);
        raw
    }
}

impl From<Training> for Raw {
    fn from(training: Training) -> Self {
        let (epochs, steps) = match training.length {
            Length::Epochs(epochs) => (Some(epochs), None),
            Length::Steps(steps) => (None, Some(steps)),
        };
        Self {
            epochs,
            steps,
            batch_size: training.batch_size,
            learning_rate: Some(training.learning_rate),
            schedule: training.schedule,
            momentum: training.momentum,
            weight_decay: training.weight_decay,
            clip_norm: training.clip_norm,
            proximal: training.proximal,
            optimizer: training.optimizer,
            state: training.state,
            micro_batch: training.micro_batch,
            precision: training.precision,
            warmup: training.warmup,
            decay: training.decay,
            floor: training.floor,
            span: training.span,
            space: training.space,
            extra: None,
        }
    }
}

impl From<TrainTable> for Raw {
    fn from(table: TrainTable) -> Self {
        Self {
            extra: (!table.extra.is_empty()).then(|| table.extra.object().clone()),
            ..table.training.into()
        }
    }
}

impl TryFrom<Raw> for TrainTable {
    type Error = ProtocolError;

    fn try_from(mut raw: Raw) -> Result<Self, ProtocolError> {
        let extra = raw.extra.take().map_or(Ok(Extra::default()), Extra::from_table)?;
        let training = raw.try_into()?;
        Ok(Self { training, extra })
    }
}

impl TryFrom<Raw> for Training {
    type Error = ProtocolError;

    fn try_from(raw: Raw) -> Result<Self, ProtocolError> {
        if raw.extra.is_some() {
            return Err(ProtocolError::invalid("train.extra", "has no place here"));
        }
        let length = match (raw.epochs, raw.steps) {
            (Some(_), Some(_)) => return Err(ProtocolError::invalid("steps", "give either epochs or steps, not both")),
            (None, Some(steps)) => Length::Steps(steps),
            (epochs, None) => Length::Epochs(epochs.unwrap_or(1)),
        };
        Self {
            length,
            batch_size: raw.batch_size,
            learning_rate: raw.learning_rate.unwrap_or(raw.optimizer.default_learning_rate()),
            schedule: raw.schedule,
            momentum: raw.momentum,
            weight_decay: raw.weight_decay,
            clip_norm: raw.clip_norm,
            proximal: raw.proximal,
            optimizer: raw.optimizer,
            state: raw.state,
            micro_batch: raw.micro_batch,
            precision: raw.precision,
            warmup: raw.warmup,
            decay: raw.decay,
            floor: raw.floor,
            span: raw.span,
            space: raw.space,
        }
        .checked()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
