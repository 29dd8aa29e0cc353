//! One client's update as a file, to try codecs on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use fl_client::{FitPlan, Progress};
use fl_proto::TrainTable;

use crate::experiment::Experiment;

/// The work of `fl-sim update`.
#[derive(Debug, Args)]
pub(crate) struct Update {
    /// The experiment whose workload and `[run.train]` are taken, such as configs/experiments/fashion-cnn.toml
    file: PathBuf,
    /// Where the update is written, as safetensors
    out: PathBuf,
    /// Whose data
    #[arg(long, default_value_t = 0)]
    client: u32,
    /// Rounds this client trains on its own before the one whose update is written
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// Seed of first weights and batches
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

impl Update {
    /// Trains, writes the update and returns a summary.
    pub(crate) fn run(&self) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(&self.file).with_context(|| self.file.display().to_string())?;
        let base = self.file.parent().unwrap_or(Path::new("."));
        let experiment = Experiment::from_toml(&text, base).with_context(|| self.file.display().to_string())?;
        let training = experiment
            .run
            .get("train")
            .cloned()
            .unwrap_or_else(|| toml::Table::new().into());
        let TrainTable { training, extra } = training.try_into().context("[run.train]")?;
        let (layout, first) = experiment.workload.initial(self.seed)?;
        let mut learner = experiment.workload.learner(self.client)?;
        learner.load(&first)?;
        let mut before = vec![0.0; layout.len()];
        let mut after = before.clone();
        let rounds = self.after + 1;
        let mut kept = None;
        for round in 1..=rounds {
            learner.weights(&mut before)?;
            let fit = learner.fit(&FitPlan {
                training,
                extra: extra.clone(),
                round,
                rounds,
                seed: self.seed ^ round,
                deadline: None,
                squared_gradients: false,
                kept: kept.take().map(Arc::new),
                progress: Arc::new(Progress::default()),
            })?;
            kept = fit.kept;
        }
        learner.weights(&mut after)?;
        for (after, before) in after.iter_mut().zip(&before) {
            *after -= before;
        }
        fl_client::weights::export(&self.out, &layout, &after)?;
        let squares = after.iter().map(|&value| f64::from(value) * f64::from(value));
        let norm = squares.sum::<f64>().sqrt();
        Ok(format!(
            "{}: update of {} values in {} tensors, norm {norm:.4}",
            self.out.display(),
            layout.len(),
            layout.tensors().len()
        ))
    }
}
