//! A trainer as a [`Learner`].

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use fl_compress::{Layout, Role};
use fl_proto::open_regular;

use super::config::{Source, TrainerConfig};
use super::folder::WorkFolder;
use super::local::LocalFile;
use super::message::{Hello, MODEL_FILE, RESULT_FILE, SQUARED_FILE};
use super::replaced::replaced;
use super::request::{Answer, Bound, Request};
use super::supervisor::Supervisor;
use super::tensors::{Marks, Tensors};
use crate::learner::{EvaluatePlan, Evaluation, Fit, FitPlan, Learner, Progress, RunTensors};
use crate::local_path::local_path;

/// A program that trains, started once and kept for the run.
#[derive(Debug)]
pub struct TrainerLearner {
    config: TrainerConfig,
    /// Dropped before the folder that its process uses.
    supervisor: Option<Supervisor>,
    folder: Option<WorkFolder>,
    tensors: Tensors,
    bound: Option<Arc<Bound>>,
    /// Where local tensors are stored, if the run has any.
    local: Option<LocalFile>,
    /// The bytes of the last result; empty if nothing was trained since the weights were loaded.
    result: Vec<u8>,
    /// Whether the first training of the run was compared with the trainer's own first weights.
    compared: bool,
}

impl TrainerLearner {
    /// A trainer that is started when it joins a run.
    ///
    /// # Errors
    /// Never for a valid configuration.
    pub fn new(config: TrainerConfig) -> anyhow::Result<Self> {
        Ok(Self {
            config,
            supervisor: None,
            folder: None,
            tensors: Tensors::new(Arc::new(Layout::of([])?), &[])?,
            bound: None,
            local: None,
            result: Vec::new(),
            compared: false,
        })
    }

    /// Starts the trainer if it does not run, and returns what it says about itself and the number of its process group.
    ///
    /// # Errors
    /// If it cannot be started or speaks another version of the protocol.
    pub fn hello(&mut self) -> anyhow::Result<(Hello, Option<i32>)> {
        self.hello_until(&Arc::default())
    }

    /// As [`TrainerLearner::hello`], as long as `progress` is not stopped.
    fn hello_until(&mut self, progress: &Arc<Progress>) -> anyhow::Result<(Hello, Option<i32>)> {
        match self.supervisor()?.ask(Request::Hello, progress)? {
            Answer::Hello(hello, group) => Ok((hello, group)),
            other => bail!("answer {other:?} to a greeting"),
        }
    }

    /// The bytes of the safetensors file with the trainer's own first weights, if it has written one: at most `max`.
    ///
    /// # Errors
    /// If the file cannot be read or is longer.
    pub fn own_weights_file(&self, hello: &Hello, max: u64) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(name) = &hello.weights else { return Ok(None) };
        let path = self.file(name)?;
        let mut bytes = Vec::new();
        let read = read_into(&path, max, &mut bytes);
        read.with_context(|| format!("the trainer's first weights, {}", path.display()))?;
        Ok(Some(bytes))
    }

    /// The trainer's own first weights of the tensors of `layout`. Returns `[layout.len()]`.
    pub(crate) fn own_weights(
        &self,
        hello: &Hello,
        layout: &Arc<Layout>,
        max: u64,
    ) -> anyhow::Result<Option<Vec<f32>>> {
        let Some(bytes) = self.own_weights_file(hello, max)? else {
            return Ok(None);
        };
        let mut weights = vec![0.0; layout.len()];
        let read = Tensors::new(Arc::clone(layout), &[])?.read(&bytes, &mut weights);
        read.context("the trainer's first weights")?;
        Ok(Some(weights))
    }

    /// The trainer's own first weights of what travels, once it has said hello. `None` where a frozen base is in the same file:
    /// it may be many times as large as what a download would cost.
    fn first_weights(&mut self, progress: &Arc<Progress>) -> anyhow::Result<Option<Vec<f32>>> {
        let has_base = self.bound.as_ref().is_some_and(|bound| bound.run.base.is_some());
        if has_base || matches!(self.config.source, Source::Attach(_)) {
            return Ok(None);
        }
        let (hello, _) = self.hello_until(progress)?;
        self.own_weights(&hello, &self.tensors.layout(), self.tensors.max_file())
    }

    pub(crate) fn file(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.as_ref().context("the trainer was not started")?;
        Ok(folder.path().join(name))
    }

    fn squared_gradients(&self, marks: &Marks) -> anyhow::Result<Vec<f32>> {
        let mut bytes = Vec::new();
        let read = self.file(SQUARED_FILE);
        let read = read.and_then(|path| read_into(&path, self.tensors.max_file(), &mut bytes));
        let read = read.and_then(|()| marks.expect_overwritten(&bytes));
        read.and_then(|()| self.tensors.squared_gradients(&bytes))
            .with_context(|| format!("the trainer's squared gradients {SQUARED_FILE}"))
    }

    /// Logs which constants of this client the run has replaced. Best effort: a trainer need not give its first weights.
    fn log_replaced(&mut self, progress: &Arc<Progress>) -> anyhow::Result<()> {
        let (hello, _) = self.hello_until(progress)?;
        let Some(own) = &hello.weights else { return Ok(()) };
        let files = [self.file(own)?, self.file(MODEL_FILE)?];
        let tensors = replaced(&self.tensors.layout(), &hello.kinds, &files, &self.result)?.join(", ");
        if !tensors.is_empty() {
            tracing::warn!(
                task = self.config.task,
                tensors,
                "the run replaces constants of this client; name them in `model.local` of run.toml where each keeps its own"
            );
        }
        Ok(())
    }

    fn supervisor(&mut self) -> anyhow::Result<&Supervisor> {
        let Self {
            config,
            supervisor,
            folder,
            bound,
            ..
        } = self;
        if supervisor.is_none() {
            let folder = match folder {
                Some(folder) => folder,
                None => folder.insert(WorkFolder::create(&config.folder, config.state.as_deref())?),
            };
            let started = supervisor.insert(Supervisor::start(config.clone(), folder.path().to_owned())?);
            if let Some(bound) = bound {
                started.join(Arc::clone(bound));
            }
        }
        supervisor.as_ref().context("the trainer was not started")
    }
}

impl Learner for TrainerLearner {
    fn layout(&self) -> Arc<Layout> {
        self.tensors.layout()
    }

    /// Succeeds for every run: whether the trainer's model is the run's is known when the trainer has said hello, and then a
    /// difference makes the client leave rounds, not the federation.
    fn join(&mut self, run: &RunTensors) -> anyhow::Result<()> {
        if self.bound.as_ref().is_some_and(|bound| bound.run == *run) {
            return Ok(());
        }
        self.tensors = Tensors::new(Arc::clone(&run.layout), &run.aside)?;
        self.result.clear();
        self.compared = false;
        let has_local = run.aside.iter().any(|tensor| tensor.role == Role::Local);
        self.local = match self.config.state.as_deref().filter(|_| has_local) {
            Some(state) => Some(LocalFile::new(state, self.config.sync, run)?),
            None => None,
        };
        let bound = Arc::new(Bound {
            run: run.clone(),
            local: self.local.as_ref().map(|local| local.path().to_owned()),
            kept: self
                .config
                .state
                .as_deref()
                .map(|state| local_path(state, run, "kept"))
                .transpose()?,
        });
        self.bound = Some(Arc::clone(&bound));
        if let Some(supervisor) = &self.supervisor {
            supervisor.join(bound);
        } else if let Err(error) = self.supervisor() {
            // Every round tries again.
            let why = format!("{error:#}");
            tracing::warn!(task = self.config.task, why, "the trainer does not start");
        }
        Ok(())
    }

    /// The trainer's own first weights, as `hello` names them. Waits for a command to load its model, which the first round
    /// needs anyway, but not for a trainer that attaches.
    fn initial(&mut self, _: u64, progress: &Arc<Progress>) -> Option<Vec<f32>> {
        self.first_weights(progress).unwrap_or_else(|error| {
            let task = &self.config.task;
            let why = format!("{error:#}");
            tracing::info!(task, why, "no first weights from the trainer: the model is downloaded");
            None
        })
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        self.result.clear();
        if let Some(local) = &self.local {
            local.check(&self.tensors)?;
        }
        self.supervisor()?;
        self.tensors.write(&self.file(MODEL_FILE)?, weights)
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        self.result.clear();
        let path = self.file(RESULT_FILE)?;
        let trained = match self.supervisor()?.ask(Request::Fit(plan.clone()), &plan.progress)? {
            Answer::Fitted(trained) => trained,
            other => bail!("answer {other:?} to a training"),
        };
        let read = read_into(&path, self.tensors.max_file(), &mut self.result);
        let context = || format!("the trainer's result {RESULT_FILE}");
        read.with_context(context)?;
        if let Err(untouched) = trained.result.expect_overwritten(&self.result) {
            self.result.clear();
            return Err(untouched).with_context(context);
        }
        let mut fit = trained.fit;
        fit.squared_gradients = trained
            .squared_gradients
            .map(|marks| self.squared_gradients(&marks))
            .transpose()?;
        let local = self.tensors.local_of(&self.result).with_context(context)?;
        if let Some((bytes, file)) = local.zip(self.local.as_ref()) {
            // Checked first: local tensors of a training that counts nowhere are not kept.
            self.tensors.check(&self.result).with_context(context)?;
            // A round may train the personal layers alone.
            if fit.unchanged_ok.is_none()
                && self
                    .tensors
                    .differ(&std::fs::read(file.path()).unwrap_or_default(), &bytes)
            {
                fit.unchanged_ok = Some(true);
            }
            file.save(&bytes)?;
        }
        if !std::mem::replace(&mut self.compared, true) {
            let _ = self.log_replaced(&plan.progress);
        }
        Ok(fit)
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        if self.result.is_empty() {
            let mut loaded = Vec::new();
            read_into(&self.file(MODEL_FILE)?, self.tensors.max_file(), &mut loaded)?;
            return self.tensors.read(&loaded, out);
        }
        let read = self.tensors.read(&self.result, out);
        read.with_context(|| format!("the trainer's result {RESULT_FILE}"))
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        self.evaluate_with(&EvaluatePlan::default())
    }

    fn evaluate_with(&mut self, plan: &EvaluatePlan) -> anyhow::Result<Option<Evaluation>> {
        match self
            .supervisor()?
            .ask(Request::Evaluate(plan.version), &plan.progress)?
        {
            Answer::Evaluated(evaluation) => Ok(evaluation),
            other => bail!("answer {other:?} to an evaluation"),
        }
    }
}

fn read_into(path: &Path, max: u64, buffer: &mut Vec<u8>) -> anyhow::Result<()> {
    buffer.clear();
    let file = match open_regular(File::options().read(true), path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!("was not written"),
        file => file?,
    };
    let found = file.metadata()?;
    anyhow::ensure!(
        found.len() <= max,
        "has {} bytes, more than the {max} that the run's tensors need",
        found.len()
    );
    buffer.reserve_exact(found.len() as usize);
    file.take(max).read_to_end(buffer)?;
    Ok(())
}
