//! How a client trains in one round: the `[train]` table of a run, sent with every task.

use serde::{Deserialize, Serialize};

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

/// How the learning rate changes over the rounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// The same in every round.
    #[default]
    Constant,
    /// From the full rate in round 1 down to zero after the last, along half a cosine.
    Cosine,
    /// Multiplied by `factor` after every `every` rounds.
    Step {
        /// Rounds between two changes, at least 1.
        every: u32,
        /// Multiplier, above 0 and at most 1.
        factor: f32,
    },
}

/// Settings of local SGD. Every field is checked: a `Training` cannot be out of range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Training {
    /// Epochs or steps.
    pub length: Length,
    /// Examples a step, 1 to 65,536.
    pub batch_size: u32,
    /// Learning rate of round 1, finite and above 0.
    pub learning_rate: f32,
    /// How the rate changes with the round.
    pub schedule: Schedule,
    /// Momentum of local SGD (reset every round), 0 to below 1.
    pub momentum: f32,
    /// L2 weight decay added to the gradient, 0 or above.
    pub weight_decay: f32,
    /// Largest L2 norm of one step's gradient over all tensors; `None`: no clipping.
    pub clip_norm: Option<f32>,
    /// Weight mu of FedProx's proximal term (Li et al. 2020, eq. 2), 0 for none.
    pub proximal: f32,
}

/// The `[train]` table of a run.toml.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(try_from = "Raw")]
pub struct TrainTable {
    /// Settings of local SGD.
    pub training: Training,
    /// `[train.extra]`, which is passed to trainers.
    pub extra: Extra,
}

/// The `[train]` table as written: `epochs` or `steps`; every other key has a default.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    epochs: Option<u32>,
    steps: Option<u32>,
    batch_size: u32,
    learning_rate: f32,
    schedule: Schedule,
    momentum: f32,
    weight_decay: f32,
    clip_norm: Option<f32>,
    proximal: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Default for Raw {
    fn default() -> Self {
        let mut raw = Self::from(Training::default());
        raw.epochs = None;
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
            learning_rate: training.learning_rate,
            schedule: training.schedule,
            momentum: training.momentum,
            weight_decay: training.weight_decay,
            clip_norm: training.clip_norm,
            proximal: training.proximal,
            extra: None,
        }
    }
}

impl TryFrom<Raw> for TrainTable {
    type Error = ProtocolError;

    fn try_from(mut raw: Raw) -> Result<Self, ProtocolError> {
        let extra = raw.extra.take().map_or(Ok(Extra::default()), Extra::from_toml)?;
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
            learning_rate: raw.learning_rate,
            schedule: raw.schedule,
            momentum: raw.momentum,
            weight_decay: raw.weight_decay,
            clip_norm: raw.clip_norm,
            proximal: raw.proximal,
        }
        .checked()
    }
}

impl Default for Training {
    fn default() -> Self {
        Self {
            length: Length::Epochs(1),
            batch_size: 32,
            learning_rate: 0.05,
            schedule: Schedule::Constant,
            momentum: 0.0,
            weight_decay: 0.0,
            clip_norm: None,
            proximal: 0.0,
        }
    }
}

impl Training {
    /// The same settings if every field is in range.
    pub(crate) fn checked(self) -> Result<Self, ProtocolError> {
        let within = |field, value: f32, ok: bool, range| {
            if ok {
                Ok(())
            } else {
                Err(ProtocolError::invalid(field, format!("{value} must be {range}")))
            }
        };
        let (Length::Epochs(length) | Length::Steps(length)) = self.length;
        within(
            "epochs",
            length as f32,
            (1..=1_000_000).contains(&length),
            "1 to 1000000 epochs or steps",
        )?;
        let batch = self.batch_size;
        within("batch_size", batch as f32, (1..=65_536).contains(&batch), "1 to 65536")?;
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
        let (decay, mu) = (self.weight_decay, self.proximal);
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
        Ok(self)
    }

    /// Learning rate in `round` (1-based) of a run of `rounds`.
    pub fn learning_rate_in(&self, round: u64, rounds: u64) -> f32 {
        let done = round.saturating_sub(1);
        match self.schedule {
            Schedule::Constant => self.learning_rate,
            Schedule::Cosine => {
                let part = done.min(rounds) as f64 / rounds.max(1) as f64;
                (f64::from(self.learning_rate) * 0.5 * (1.0 + (std::f64::consts::PI * part).cos())) as f32
            }
            Schedule::Step { every, factor } => {
                self.learning_rate * factor.powi((done / u64::from(every.max(1))).min(i32::MAX as u64) as i32)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Training, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn an_empty_table_is_the_default() {
        assert_eq!(parse("{}").unwrap(), Training::default());
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (text, field) in [
            (r#"{"batch_size":0}"#, "batch_size"),
            (r#"{"epochs":0}"#, "epochs"),
            (r#"{"epochs":1,"steps":2}"#, "steps"),
            (r#"{"learning_rate":0}"#, "learning_rate"),
            (r#"{"momentum":1.0}"#, "momentum"),
            (r#"{"clip_norm":-1}"#, "clip_norm"),
            (r#"{"schedule":{"step":{"every":0,"factor":0.5}}}"#, "schedule.every"),
            (r#"{"learning_rat":1}"#, "learning_rat"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(field), "{text}: {error}");
        }
    }

    #[test]
    fn the_table_of_a_run_may_have_extra_settings() {
        let table: TrainTable = serde_json::from_str(r#"{"steps":3,"extra":{"augment":true}}"#).unwrap();
        assert_eq!(table.training.length, Length::Steps(3));
        assert_eq!(table.extra.get("augment"), Some(&true.into()));
        assert!(parse(r#"{"extra":{}}"#).unwrap_err().contains("train.extra"));
        assert_eq!(serde_json::from_str::<TrainTable>("{}").unwrap(), TrainTable::default());
        // Plans are identified by this text: without extra settings it has no such key.
        assert!(!serde_json::to_string(&Training::default()).unwrap().contains("extra"));
    }

    #[test]
    fn schedules_lower_the_rate_from_round_to_round() {
        let rate = |schedule, round| {
            Training {
                schedule,
                ..Training::default()
            }
            .learning_rate_in(round, 10)
                / 0.05
        };
        assert_eq!(rate(Schedule::Constant, 10), 1.0);
        assert!((rate(Schedule::Cosine, 1) - 1.0).abs() < 1e-6);
        assert!((rate(Schedule::Cosine, 6) - 0.5).abs() < 1e-6);
        let step = Schedule::Step { every: 3, factor: 0.5 };
        assert_eq!([1, 3, 4, 7].map(|round| rate(step, round)), [1.0, 1.0, 0.5, 0.25]);
    }
}
