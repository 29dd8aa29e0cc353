//! The answer: bytes and fidelity of each round, each client and all, as recorded and under the other spec.

use std::collections::BTreeMap;

use fl_report::StageBytes;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::energy::Energy;
use super::replay::{ChainResult, FrameResult};
use super::{Memories, StoredFrames, Verdict};
use crate::reporting::report::stage_bytes;

/// What a run would have moved. As JSON, each table is an object of columns, and a missing number is null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WhatIf {
    pub(crate) run: String,
    /// Values of the model.
    pub(crate) parameters: usize,
    pub(crate) verdict: Verdict,
    pub(crate) differences: Vec<String>,
    pub(crate) memory: &'static str,
    pub(crate) step_memory: &'static str,
    pub(crate) updates: Line,
    pub(crate) steps: Line,
    #[serde(serialize_with = "by_round")]
    pub(crate) rounds: Vec<Line>,
    /// Steps by the round that they closed.
    #[serde(serialize_with = "by_round")]
    pub(crate) step_rounds: Vec<Line>,
    #[serde(serialize_with = "by_client")]
    pub(crate) clients: Vec<Line>,
    /// Rounds with updates that are not stored any more, and their number of clients.
    pub(crate) missing: BTreeMap<u64, usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Line {
    #[serde(skip_serializing_if = "Of::is_all")]
    pub(crate) of: Of,
    pub(crate) frames: u64,
    /// Bytes at four for each value.
    pub(crate) fp32: u64,
    pub(crate) recorded_reduced: u64,
    pub(crate) recorded_quantized: u64,
    pub(crate) recorded_coded: u64,
    pub(crate) recorded_framed: u64,
    pub(crate) recorded_bound: f64,
    pub(crate) reduced: u64,
    pub(crate) quantized: u64,
    pub(crate) coded: u64,
    pub(crate) framed: u64,
    pub(crate) bound: f64,
    pub(crate) ratio: Option<f64>,
    /// Relative squared error of a frame: the mean.
    pub(crate) error: Option<f64>,
    /// Cosine of a frame with its update: the mean.
    pub(crate) cosine: Option<f64>,
    /// Relative squared error of the sum over the run: what is unsent at its end. `None` for a round.
    pub(crate) sum_error: Option<f64>,
    pub(crate) sum_cosine: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Of {
    #[default]
    All,
    Round(u64),
    Client(String),
}

impl Of {
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::Round(round) => f.pad(&round.to_string()),
            Self::Client(client) => f.pad(client),
        }
    }
}

impl WhatIf {
    /// The answer for `clients`, whose updates became `updates`, one after another.
    pub(super) fn new(
        stored: &StoredFrames,
        parameters: usize,
        memories: Memories,
        clients: &[&str],
        updates: &[ChainResult],
        steps: &ChainResult,
    ) -> Self {
        let fp32 = parameters as u64 * 4;
        let mut missing = BTreeMap::new();
        let gone = updates.iter().flat_map(|chain| &chain.missing);
        gone.for_each(|&round| *missing.entry(round).or_default() += 1);
        let lines = clients.iter().zip(updates).map(|(name, chain)| {
            let of = Of::Client((*name).to_owned());
            Line::of(of, fp32, &chain.done).with_sum(&chain.whole)
        });
        let total = Line::of_all(updates, fp32);
        let of_steps_alone = Line::of_all(std::slice::from_ref(steps), fp32);
        let downloads = stored.updates.len() as f64 / stored.steps.len().max(1) as f64;
        Self {
            run: stored.run.clone(),
            verdict: Verdict::of(&stored.run, &total, &of_steps_alone, downloads),
            differences: Vec::new(),
            parameters,
            memory: memories.updates.name(),
            step_memory: memories.model_updates.name(),
            updates: total,
            steps: of_steps_alone,
            rounds: rounds(updates, fp32),
            step_rounds: rounds(std::slice::from_ref(steps), fp32),
            clients: lines.collect(),
            missing,
        }
    }

    pub(crate) fn frames(&self) -> u64 {
        self.updates.frames + self.steps.frames
    }
}

fn rounds(chains: &[ChainResult], fp32: u64) -> Vec<Line> {
    let mut rounds = BTreeMap::<u64, Vec<&FrameResult>>::new();
    for done in chains.iter().flat_map(|chain| &chain.done) {
        rounds.entry(done.round).or_default().push(done);
    }
    let rounds = rounds.into_iter();
    rounds
        .map(|(round, done)| Line::of(Of::Round(round), fp32, done))
        .collect()
}

impl Line {
    fn of<'d>(of: Of, fp32: u64, all: impl IntoIterator<Item = &'d FrameResult>) -> Self {
        let mut recorded = StageBytes::default();
        let mut other = StageBytes::default();
        let mut frames = 0;
        let mut error = Mean::default();
        let mut cosine = Mean::default();
        for done in all {
            frames += 1;
            recorded.add(&stage_bytes(&done.recorded));
            other.add(&stage_bytes(&done.other));
            error.add(done.energy.relative_error());
            cosine.add(done.energy.cosine());
        }
        Self {
            of,
            frames,
            fp32: fp32.saturating_mul(frames),
            recorded_reduced: recorded.reduced,
            recorded_quantized: recorded.quantized,
            recorded_coded: recorded.coded,
            recorded_framed: recorded.framed,
            recorded_bound: recorded.entropy_bound,
            reduced: other.reduced,
            quantized: other.quantized,
            coded: other.coded,
            framed: other.framed,
            bound: other.entropy_bound,
            ratio: (other.framed > 0).then(|| recorded.framed as f64 / other.framed as f64),
            error: error.value(),
            cosine: cosine.value(),
            sum_error: None,
            sum_cosine: None,
        }
    }

    fn of_all(chains: &[ChainResult], fp32: u64) -> Self {
        let mut whole = Energy::default();
        chains.iter().for_each(|chain| whole.add(&chain.whole));
        let done = chains.iter().flat_map(|chain| &chain.done);
        Self::of(Of::All, fp32, done).with_sum(&whole)
    }

    fn with_sum(self, whole: &Energy) -> Self {
        Self {
            sum_error: whole.relative_error(),
            sum_cosine: whole.cosine(),
            ..self
        }
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

fn by_round<S: Serializer>(lines: &[Line], serializer: S) -> Result<S::Ok, S::Error> {
    columns("round", lines, serializer)
}

fn by_client<S: Serializer>(lines: &[Line], serializer: S) -> Result<S::Ok, S::Error> {
    columns("client", lines, serializer)
}

/// An object of columns, that of what the lines are of by the name of `key`.
fn columns<S: Serializer>(key: &str, lines: &[Line], serializer: S) -> Result<S::Ok, S::Error> {
    let mut columns = BTreeMap::<String, Vec<serde_json::Value>>::new();
    for line in lines {
        let line = serde_json::to_value(line).map_err(serde::ser::Error::custom)?;
        for (name, value) in line.as_object().into_iter().flatten() {
            let name = if name == "of" { key } else { name };
            columns.entry(name.to_owned()).or_default().push(value.clone());
        }
    }
    let mut map = serializer.serialize_map(Some(columns.len()))?;
    for (name, column) in &columns {
        map.serialize_entry(name, column)?;
    }
    map.end()
}
