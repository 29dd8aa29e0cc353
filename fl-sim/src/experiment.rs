//! An experiment: one workload, several variants, several seeds; accuracy and bytes side by side.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use fl_client::{DeviceChoice, Error, weights};
use fl_compress::Layout;
use fl_learn::learners::LearnerChoice;
use fl_server::model::budgets;
use fl_server::plan::RunPlan;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::federation::{self, News, Setup};
use crate::score::{Score, bytes};
use crate::statistics::{Quality, Spread};
use crate::wire::{self, Engine, Wire};
use crate::workload::{Evaluation, TASK, Workload};

/// An experiment file. Relative data folders are relative to its folder.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Seeds of the runs: first weights, cohorts, batches, stochastic rounding. Splits have their own seed.
    pub seeds: Vec<u64>,
    /// How its federations run.
    #[serde(default)]
    pub engine: Engine,
    /// Learner and data.
    pub workload: Workload,
    /// `run.toml` without name, task and seed, and of its `model` only `snapshot`.
    pub run: toml::Table,
    /// The variants.
    pub variant: Vec<Variant>,
}

/// One variant of an experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in the table and in run names.
    pub name: String,
    /// The learner, if it differs from the workload's.
    pub learner: Option<LearnerChoice>,
    /// The number of clients, if it differs from the workload's.
    pub clients: Option<u32>,
    /// First weights, a safetensors file of the learner's tensors; drawn by the seed if omitted.
    pub model: Option<PathBuf>,
    /// Keys of the experiment's `run` that differ; tables are merged.
    #[serde(default)]
    pub run: toml::Table,
    /// The `[compression]` table of its runs.
    #[serde(default)]
    pub compression: toml::Table,
}

/// Where learners work.
#[derive(Debug, Clone)]
pub struct Place {
    /// As many permits as learners may work at once; trials at the same time share it.
    pub gate: Arc<Semaphore>,
    /// Where each computes.
    pub device: DeviceChoice,
}

/// One run of an experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    /// The variant.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    /// The result.
    pub score: Score,
}

impl Experiment {
    /// Reads an experiment. `base`: the file's folder.
    ///
    /// # Errors
    /// If a key is unknown or a value is out of range; the error names it.
    pub fn from_toml(text: &str, base: &Path) -> anyhow::Result<Self> {
        let mut experiment: Self = toml::from_str(text)?;
        experiment.relative_to(base);
        experiment.check()?;
        Ok(experiment)
    }

    /// Makes relative paths relative to `base`.
    pub fn relative_to(&mut self, base: &Path) {
        self.workload.data.relative_to(base);
        self.workload.learner.relative_to(base);
        for variant in &mut self.variant {
            if let Some(learner) = &mut variant.learner {
                learner.relative_to(base);
            }
            if let Some(model) = &mut variant.model {
                *model = base.join(&*model);
            }
        }
    }

    /// Finds before the first trial what would stop a later one.
    ///
    /// # Errors
    /// If a variant's run is refused; the error names the variant and the key.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.seeds.is_empty(), "`seeds` is empty");
        ensure!(!self.variant.is_empty(), "there is no `[[variant]]`");
        for (at, variant) in self.variant.iter().enumerate() {
            let name = &variant.name;
            let again = self.variant[..at].iter().any(|earlier| earlier.name == *name);
            ensure!(!again, "variant `{name}` is there twice");
            let run = format!("model.weights = \"first\"\n{}", self.run_toml(variant, self.seeds[0])?);
            let plan = RunPlan::from_toml(&run, Path::new("")).with_context(|| format!("variant `{name}`"))?;
            let clients = variant.clients.unwrap_or(self.workload.clients);
            let min = plan.cohort.min;
            ensure!(
                clients as usize >= min,
                "variant `{name}`: `clients` is {clients}, but `cohort.min` needs {min}"
            );
            self.engine
                .clock(clients as usize)
                .with_context(|| format!("variant `{name}`"))?;
        }
        Ok(())
    }

    /// The first weights that a variant names are there.
    ///
    /// # Errors
    /// Which file is missing.
    pub fn check_files(&self) -> anyhow::Result<()> {
        for Variant { name, model, .. } in &self.variant {
            if let Some(model) = model.as_ref().filter(|model| !model.is_file()) {
                bail!("variant `{name}`: `model`: there is no file {}", model.display());
            }
        }
        Ok(())
    }

    /// Checks the budgets of a variant with its first weights, for which `dir` is made. Returns the warnings.
    ///
    /// # Errors
    /// If the codec cannot keep a budget; the error names the key and the smallest budget. As [`Experiment::trial`].
    pub fn check_budgets(&self, variant: &Variant, seed: u64, dir: &Path) -> anyhow::Result<Vec<String>> {
        let run = self.run_toml(variant, seed)?;
        let plan = RunPlan::from_toml(&format!("model.weights = \"first\"\n{run}"), Path::new(""))?;
        if plan.uplink.budget.is_none() && plan.downlink.budget.is_none() {
            return Ok(Vec::new());
        }
        let (layout, weights) = self.first(variant, seed)?;
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let plan = federation::plan(dir, &run, "", &layout, &weights)?;
        budgets::warnings(&plan).map_err(|why| Error::Config(why).into())
    }

    /// Layout and first weights of a variant.
    fn first(&self, variant: &Variant, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
        let (layout, drawn) = self.workload_of(variant).initial(seed)?;
        let weights = match &variant.model {
            Some(file) => weights::import(file, &layout)?,
            None => drawn,
        };
        Ok((layout, weights))
    }

    /// The text of `run.toml` of one trial, without `model.weights`.
    ///
    /// # Errors
    /// If it sets more of the model than `snapshot`, or cannot be written as TOML.
    pub fn run_toml(&self, variant: &Variant, seed: u64) -> anyhow::Result<String> {
        let mut run = self.run.clone();
        merge(&mut run, &variant.run);
        let is_snapshot = run.get("model").is_none_or(|model| {
            let model = model.as_table();
            model.is_some_and(|model| model.keys().all(|key| key == "snapshot"))
        });
        ensure!(
            is_snapshot,
            "`run.model`: every trial gets its own first weights; only `snapshot` can be set there"
        );
        run.insert("name".into(), format!("{}-{seed}", variant.name).into());
        run.insert("task".into(), TASK.into());
        run.insert(
            "seed".into(),
            i64::try_from(seed).context("a seed must be below 2^63")?.into(),
        );
        run.insert("compression".into(), variant.compression.clone().into());
        Ok(toml::to_string(&run)?)
    }

    /// The workload with the variant's changes.
    pub fn workload_of(&self, variant: &Variant) -> Workload {
        let given = &self.workload;
        Workload {
            learner: variant.learner.as_ref().unwrap_or(&given.learner).clone(),
            clients: variant.clients.unwrap_or(given.clients),
            data: given.data.clone(),
        }
    }

    /// Runs one trial in `dir`.
    ///
    /// # Errors
    /// As [`federation::run`].
    pub async fn trial(
        &self,
        variant: &Variant,
        seed: u64,
        dir: &Path,
        place: &Place,
        evaluation: Evaluation,
        news: impl FnMut(News<'_>),
    ) -> anyhow::Result<Trial> {
        let workload = self.workload_of(variant);
        let (layout, weights) = self.first(variant, seed)?;
        let setup = Setup {
            dir: dir.join(format!("{}-{seed}", variant.name)),
            run: self.run_toml(variant, seed)?,
            layout,
            weights,
            learner: workload.learner.to_string(),
            members: workload.members_on(place.device, evaluation)?,
            gate: Arc::clone(&place.gate),
            live: None,
        };
        let score = match self.engine.wire {
            Wire::Tls => federation::run(setup, news).await?,
            Wire::Model => wire::run(setup, &self.engine, news).await?,
        };
        Ok(Trial {
            variant: variant.name.clone(),
            seed,
            score,
        })
    }
}

/// Sets every key of `changes` in `to`; a table in both is merged.
fn merge(to: &mut toml::Table, changes: &toml::Table) {
    for (key, change) in changes {
        match (to.get_mut(key), change) {
            (Some(toml::Value::Table(to)), toml::Value::Table(changes)) => merge(to, changes),
            _ => drop(to.insert(key.clone(), change.clone())),
        }
    }
}

/// The table of an experiment: mean and sample standard deviation over the seeds, and ratios to fp32 averaging.
pub fn table(trials: &[Trial]) -> String {
    let mut names: Vec<&str> = trials.iter().map(|trial| trial.variant.as_str()).collect();
    names.dedup();
    let quality = Quality::of(&trials.iter().map(|trial| &trial.score)).unwrap_or(Quality::Rmse);
    let digits = quality.digits();
    let mut out = format!(
        "{:<15}  {:>5}  {:>17}  {:>10}  {:>10}  {:>14}  {:>8}  {:>8}\n",
        "variant",
        "seeds",
        quality.name(),
        "bytes up",
        "bytes down",
        "bits/value u/d",
        "ratio",
        "s/round"
    );
    for name in names {
        let own: Vec<&Score> = trials.iter().filter(|t| t.variant == name).map(|t| &t.score).collect();
        let last: Vec<f64> = own.iter().filter_map(|score| quality.last(score)).collect();
        let last = Spread::of(&last);
        let mean = |of: fn(&Score) -> f64| own.iter().map(|score| of(score)).sum::<f64>() / own.len().max(1) as f64;
        let _ = writeln!(
            out,
            "{name:<15}  {:>5}  {:>8.digits$} +- {:<5.digits$}  {:>10}  {:>10}  {:>6.3} /{:>6.3}  {:>7.1}x  {:>8.2}",
            own.len(),
            last.map_or(0.0, |last| last.mean),
            last.and_then(|last| last.deviation).unwrap_or(0.0),
            bytes(mean(|score| score.server_socket.0 as f64) as u64),
            bytes(mean(|score| score.server_socket.1 as f64) as u64),
            mean(|score| score.bits().0),
            mean(|score| score.bits().1),
            mean(Score::ratio),
            mean(Score::seconds_of_round),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Sweep;

    #[test]
    fn every_experiment_in_configs_can_be_run() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/experiments");
        let mut seen = 0;
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let wrong = |e| -> () { panic!("{}: {e:#}", path.display()) };
            if path.file_name().unwrap().to_str().unwrap().starts_with("sweep-") {
                for quick in [false, true] {
                    Sweep::from_toml(&text, &dir, quick).map(drop).unwrap_or_else(wrong);
                }
            } else {
                Experiment::from_toml(&text, &dir).map(drop).unwrap_or_else(wrong);
            }
            seen += 1;
        }
        assert!(seen > 0);
    }

    #[test]
    fn a_variant_changes_single_keys_of_the_run() {
        let text = "seeds = [1]\n[workload]\nlearner = \"mlp\"\nclients = 2\ndata = { builtin = {} }\n\
                    [run]\nrounds = 3\ncohort = { min = 2, target = 2 }\ntrain = { steps = 5, batch_size = 4 }\n\
                    [[variant]]\nname = \"a\"\nrun = { train = { steps = 7 }, optimizer = { name = \"nesterov\" } }\n";
        let experiment = Experiment::from_toml(text, Path::new(".")).unwrap();
        let run: toml::Table = experiment.run_toml(&experiment.variant[0], 1).unwrap().parse().unwrap();
        let train = toml::toml! { steps = 7
        batch_size = 4 };
        assert_eq!(run["train"], toml::Value::Table(train));
        assert_eq!(run["optimizer"]["name"].as_str(), Some("nesterov"));
        assert_eq!(run["rounds"].as_integer(), Some(3));
    }

    #[test]
    fn versions_can_be_rounded_for_short_snapshots() {
        let text = "seeds = [1]\n[workload]\nlearner = \"mlp\"\nclients = 2\ndata = { builtin = {} }\n\
                    [run]\nrounds = 3\ncohort = { min = 2, target = 2 }\nmodel = { snapshot = { bits = 12, every = 2 } }\n\
                    [[variant]]\nname = \"a\"\n";
        let experiment = Experiment::from_toml(text, Path::new(".")).unwrap();
        experiment.check().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let variant = &experiment.variant[0];
        let (layout, weights) = experiment.first(variant, 1).unwrap();
        let run = experiment.run_toml(variant, 1).unwrap();
        let plan = federation::plan(dir.path(), &run, "", &layout, &weights).unwrap();
        assert!(plan.rounded.is_some());
    }

    #[test]
    fn what_would_stop_a_later_trial_is_found_before_the_first() {
        let fails = |variants: &str, want: &str| {
            let text = format!(
                "seeds = [1]\n[workload]\nlearner = \"mlp\"\nclients = 2\ndata = {{ builtin = {{}} }}\n\
                 [run]\nrounds = 3\ncohort = {{ min = 2, target = 2 }}\n{variants}"
            );
            let read = Experiment::from_toml(&text, Path::new("."));
            let error = format!("{:#}", read.and_then(|read| read.check_files()).unwrap_err());
            assert!(error.contains(want), "{error}");
        };
        let first = "[[variant]]\nname = \"a\"\n";
        fails(&format!("{first}{first}"), "variant `a` is there twice");
        fails(
            &format!("{first}clients = 1"),
            "`clients` is 1, but `cohort.min` needs 2",
        );
        fails(&format!("{first}clients = 0"), "`clients` is 0");
        fails(
            &format!("{first}model = \"none.safetensors\""),
            "there is no file ./none.safetensors",
        );
        fails(&format!("{first}run = {{ train = {{ stepz = 3 }} }}"), "stepz");
        fails("[[variant]]\nname = \"half a bit\"", "half a bit");
        fails(
            &format!("{first}run = {{ model = {{ weights = \"w.safetensors\" }} }}"),
            "only `snapshot` can be set there",
        );
        fails(
            &format!("{first}run = {{ model = {{ snapshot = {{ bits = 99, every = 1 }} }} }}"),
            "4 to 20 bits a value, not 99",
        );
    }

    #[test]
    fn deviation_is_the_sample_deviation_and_zero_for_one_seed() {
        let trial = |variant: &str, seed: u64, accuracy: f64| {
            Trial {
            variant: variant.to_owned(),
            seed,
            score: serde_json::from_value(serde_json::json!({
                "parameters": 1, "clients": 1, "server_socket": [1, 1], "client_socket": [1, 1], "ledger": [1, 1], "model": "",
                "rounds": [{
                    "round": 1, "updates": 1, "accuracy": accuracy, "perplexity": null, "test_loss": null, "train_loss": 1.0,
                    "up": 1, "down": 1, "frames_up": 1, "frames_down": 1, "seconds": 1.0, "metrics": {},
                }],
            }))
            .unwrap(),
        }
        };
        let table = table(&[
            trial("three", 1, 0.01),
            trial("three", 2, 0.02),
            trial("three", 3, 0.03),
            trial("one", 1, 0.05),
        ]);
        assert!(
            table.contains("2.00 +- 1.00") && table.contains("5.00 +- 0.00"),
            "{table}"
        );
    }
}
