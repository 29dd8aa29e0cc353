//! One trial of a sweep, and the key of its result.

use std::path::Path;

use anyhow::{Context as _, bail};
use fl_client::Event;
use fl_compress::Digest;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::file::{Point, Sweep};
use super::phase::Phase;
use crate::experiment::Place;
use crate::federation::News;
use crate::score::Score;
use crate::wire::Engine;
use crate::workload::{Evaluation, Workload};

/// Raised when a change of the program changes what a trial measures; results of other versions are not reused.
const RESULTS: u32 = 1;

#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) phase: Phase,
    pub(crate) variant: String,
    pub(crate) point: usize,
    /// Its seed: of the split, the first weights, the cohorts and the batches.
    pub(crate) seed: u64,
    /// Digest of everything on which the result depends.
    pub(crate) key: Digest,
    evaluation: Evaluation,
}

/// The result of a trial, as its file holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) phase: Phase,
    pub(crate) variant: String,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) seed: u64,
    /// Digest of the program that ran it.
    pub(crate) build: String,
    pub(crate) score: Score,
}

/// What the key is a digest of. Paths are as in the file, so that a folder can be moved together with its file.
#[derive(Serialize)]
struct Inputs<'a> {
    results: u32,
    version: &'a str,
    phase: Phase,
    seed: u64,
    validation: Option<f64>,
    run: &'a str,
    workload: &'a Workload,
    engine: &'a Engine,
    /// Digest of the file of the first weights.
    model: Option<String>,
}

impl Trial {
    pub(super) fn new(sweep: &Sweep, phase: Phase, variant: &str, point: usize, seed: u64) -> anyhow::Result<Self> {
        let of = &sweep.points(variant)[point];
        let share = sweep.validation;
        let evaluation = match phase {
            Phase::Choose => Evaluation::Validation { seed, share },
            Phase::Report => Evaluation::Test { seed },
        };
        Ok(Self {
            phase,
            variant: variant.to_owned(),
            point,
            seed,
            key: key(of, phase, seed, share)?,
            evaluation,
        })
    }

    /// Runs the trial in `dir`, an empty folder.
    ///
    /// # Errors
    /// As [`crate::federation::run`], and if a learner fails, for example because training has diverged: the federation
    /// would wait for its client until the deadline of the round.
    pub(super) async fn run(&self, point: &Point, dir: &Path, place: &Place, build: String) -> anyhow::Result<Record> {
        let (tell, mut failures) = mpsc::unbounded_channel();
        let news = move |news: News<'_>| {
            let failure = match news {
                News::Client(name, Event::LeftRound { round, why }) => format!("{name} left round {round}: {why}"),
                News::Client(name, Event::NotEvaluated { version, why }) => {
                    format!("{name} did not evaluate version {version}: {why}")
                }
                _ => return,
            };
            // The receiver is gone only if another client failed first.
            let _ = tell.send(failure);
        };
        let ran = point
            .experiment
            .trial(point.variant(), self.seed, dir, place, self.evaluation, news);
        let ran = tokio::select! {
            ran = ran => ran?,
            Some(why) = failures.recv() => bail!(why),
        };
        Ok(Record {
            phase: self.phase,
            variant: self.variant.clone(),
            settings: point.settings.clone(),
            seed: self.seed,
            build,
            score: ran.score,
        })
    }
}

fn key(point: &Point, phase: Phase, seed: u64, validation: f64) -> anyhow::Result<Digest> {
    let model = match &point.variant().model {
        None => None,
        Some(path) => {
            let file = std::fs::File::open(path);
            let digest = file.and_then(Digest::of_reader);
            let digest =
                digest.with_context(|| format!("variant `{}`: `model`: {}", point.variant().name, path.display()));
            Some(digest?.to_string())
        }
    };
    let inputs = Inputs {
        results: RESULTS,
        version: env!("CARGO_PKG_VERSION"),
        phase,
        seed,
        validation: (phase == Phase::Choose).then_some(validation),
        run: &point.experiment.run_toml(point.variant(), seed)?,
        workload: &point.given,
        engine: &point.experiment.engine,
        model,
    };
    Ok(Digest::of(&serde_json::to_vec(&inputs)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::file::tests::{FILE, read};
    use super::*;

    fn key_of(text: &str, phase: Phase, point: usize, seed: u64) -> Digest {
        let sweep = read(text).unwrap();
        Trial::new(&sweep, phase, "ours", point, seed).unwrap().key
    }

    #[test]
    fn every_input_changes_the_key() {
        let first = || key_of(FILE, Phase::Choose, 0, 1);
        assert_eq!(first(), first());
        let changed = |from: &str, to: &str| {
            assert!(FILE.contains(from), "{from}");
            key_of(&FILE.replace(from, to), Phase::Choose, 0, 1)
        };
        let all = [
            first(),
            key_of(FILE, Phase::Report, 0, 1),
            key_of(FILE, Phase::Choose, 1, 1),
            key_of(FILE, Phase::Choose, 0, 2),
            changed("learner = \"mlp\"", "learner = \"cnn\""),
            changed("clients = 2", "clients = 3"),
            changed("train = 40", "train = 41"),
            changed("test = 20", "test = 21"),
            changed("rounds = 3", "rounds = 4"),
            changed("steps = 5", "steps = 6"),
            changed("batch_size = 4", "batch_size = 5"),
            changed("min = 2", "min = 1"),
            changed("\"0.5 bits\"", "\"0.25 bits\""),
            changed("baseline", "validation = 0.2\nbaseline"),
            changed("[workload]", "[engine]\nwire = \"model\"\n[workload]"),
            changed(
                "name = \"ours\"",
                "name = \"ours\"\ncompression.uplink.memory = \"none\"",
            ),
            changed("name = \"ours\"", "name = \"ours\"\nlearner = \"cnn\"\nclients = 4"),
        ];
        let unique: BTreeSet<String> = all.iter().map(Digest::to_string).collect();
        assert_eq!(unique.len(), all.len());
    }

    #[test]
    fn the_content_of_the_first_weights_changes_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let text = FILE.replace("name = \"ours\"", "name = \"ours\"\nmodel = \"first.safetensors\"");
        let key = || {
            let sweep = Sweep::from_toml(&text, dir.path(), false)?;
            Trial::new(&sweep, Phase::Report, "ours", 0, 1).map(|trial| trial.key)
        };
        assert!(format!("{:#}", key().unwrap_err()).contains("`model`"));
        std::fs::write(dir.path().join("first.safetensors"), "1").unwrap();
        let first = key().unwrap();
        std::fs::write(dir.path().join("first.safetensors"), "2").unwrap();
        assert_ne!(first, key().unwrap());
    }

    #[test]
    fn what_does_not_reach_a_trial_leaves_its_key() {
        let first = key_of(FILE, Phase::Report, 0, 11);
        let longer = FILE
            .replace("[11, 12, 13]", "[11, 12, 13, 14]")
            .replace("[1, 2]", "[1]");
        let other = longer.replace("baseline", "reach = 1.0\nmax_loss = 0.5\nvalidation = 0.3\nbaseline");
        assert_eq!(first, key_of(&other, Phase::Report, 0, 11));
    }
}
