//! The identity of an experiment: everything in the plan that can change its outcome, in one spelling.

use fl_compress::{Digest, Spec};
use fl_proto::{Length, Schedule, Training};
use serde::Serialize;

use super::{Cohort, RunPlan, StrategySpec};

/// One spelling of a plan. The file of the first weights is left out: a run's first record has their digest.
#[derive(Serialize)]
struct Identity<'a> {
    version: u32,
    name: &'a str,
    task: &'a str,
    rounds: u64,
    seed: u64,
    evaluate: bool,
    cohort: &'a Cohort,
    train: Train,
    strategy: &'a StrategySpec,
    uplink: &'a Spec,
    downlink: &'a Spec,
}

#[derive(Serialize)]
struct Train {
    epochs: Option<u32>,
    steps: Option<u32>,
    batch_size: u32,
    learning_rate: f32,
    schedule: Schedule,
    momentum: f32,
    weight_decay: f32,
    clip_norm: Option<f32>,
    proximal: f32,
}

impl RunPlan {
    /// The plan in one spelling (JSON, fields in fixed order), whatever the layout, comments and defaults of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let identity = Identity {
            version: 1,
            name: self.name.as_str(),
            task: &self.task,
            rounds: self.rounds,
            seed: self.seed,
            evaluate: self.evaluate,
            cohort: &self.cohort,
            train: train(&self.training),
            strategy: &self.strategy,
            uplink: &self.uplink,
            downlink: &self.downlink,
        };
        serde_json::to_vec(&identity).expect("names, numbers and enums are always JSON")
    }

    /// Digest of [`RunPlan::to_bytes`]: two files with the same digest ask for the same experiment.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }
}

fn train(training: &Training) -> Train {
    let Training {
        length,
        batch_size,
        learning_rate,
        schedule,
        momentum,
        weight_decay,
        clip_norm,
        proximal,
    } = *training;
    let (epochs, steps) = match length {
        Length::Epochs(epochs) => (Some(epochs), None),
        Length::Steps(steps) => (None, Some(steps)),
    };
    Train {
        epochs,
        steps,
        batch_size,
        learning_rate,
        schedule,
        momentum,
        weight_decay,
        clip_norm,
        proximal,
    }
}
