//! A learner in closed form: training in round `r` adds a vector that depends only on `r`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use fl_client::ClassNames;
use fl_client::{Evaluation, Fit, FitPlan, Learner, OptimizerState, Progress};
use fl_compress::Layout;
use fl_proto::{Metrics, StatePolicy};

/// The vector that training in `round` adds: multiples of 1/8, so that sums are exact.
pub fn delta_of(round: u64, len: usize) -> Vec<f32> {
    (0..len as u64)
        .map(|i| ((i * 7 + round * 5 + i * i * round) % 23) as f32 / 8.0 - 1.0)
        .collect()
}

#[derive(Clone)]
pub struct Arithmetic {
    pub layout: Arc<Layout>,
    weights: Vec<f32>,
    /// Initial weights that it can create.
    pub first: Option<Vec<f32>>,
    /// Number of completed trainings.
    pub fits: Arc<AtomicU64>,
    /// In this round, training reports its start and runs until it is told to stop.
    pub endless: Option<(u64, mpsc::Sender<()>)>,
    /// Training reports its start and runs until this is set.
    pub until: Option<(Arc<AtomicBool>, mpsc::Sender<()>)>,
    /// Training fails in this round.
    pub fails_in: Option<u64>,
    /// Training panics in this round.
    pub panics_in: Option<u64>,
    /// Metrics of every training and evaluation.
    pub metrics: Metrics,
    /// Whether evaluations count right answers.
    pub classifies: bool,
    /// Evaluations find no held-out examples, which `None` or an evaluation of 0 examples says, or fail.
    pub no_evaluation: Option<Result<Option<Evaluation>, &'static str>>,
    /// Round and steps of the moments with which each training began; they grow by one in each.
    pub moments: Arc<Mutex<Vec<(u64, u64)>>>,
    /// Names of the classes of its data.
    pub classes: Option<ClassNames>,
}

impl Arithmetic {
    pub fn new() -> Self {
        let layout = super::layout();
        let weights = vec![0.0; layout.len()];
        Self {
            layout,
            weights,
            first: None,
            fits: Arc::default(),
            endless: None,
            until: None,
            fails_in: None,
            panics_in: None,
            metrics: Metrics::new(),
            classifies: true,
            no_evaluation: None,
            moments: Arc::default(),
            classes: None,
        }
    }
}

impl Learner for Arithmetic {
    fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    fn classes(&self) -> Option<ClassNames> {
        self.classes.clone()
    }

    fn initial(&mut self, _: u64, _: &Arc<Progress>) -> Option<Vec<f32>> {
        self.first.clone()
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        self.weights.copy_from_slice(weights);
        Ok(())
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        if let Some((_, began)) = self.endless.as_ref().filter(|(round, _)| *round == plan.round) {
            began.send(()).unwrap();
            while !plan.progress.stopped() {
                std::thread::yield_now();
            }
            anyhow::bail!("told to stop");
        }
        if let Some((done, began)) = &self.until {
            began.send(()).unwrap();
            while !done.load(Ordering::SeqCst) {
                anyhow::ensure!(!plan.progress.stopped(), "told to stop");
                std::thread::yield_now();
            }
        }
        anyhow::ensure!(self.fails_in != Some(plan.round), "the sensor is unplugged");
        assert_ne!(self.panics_in, Some(plan.round), "a bug in the learner");
        let delta = delta_of(plan.round, self.weights.len());
        self.weights.iter_mut().zip(delta).for_each(|(w, d)| *w += d);
        self.fits.fetch_add(1, Ordering::SeqCst);
        plan.progress.set(1, 1);
        let kept = plan.kept.as_deref();
        let before = kept.map_or(0, |kept| kept.steps);
        assert_eq!(kept.map(|kept| kept.values[0]), kept.map(|_| before as f32));
        self.moments.lock().unwrap().push((plan.round, before));
        let after = OptimizerState {
            optimizer: plan.training.optimizer.name().to_owned(),
            steps: before + 1,
            values: vec![(before + 1) as f32; self.weights.len()],
        };
        Ok(Fit {
            kept: (plan.training.state == StatePolicy::Kept).then_some(after),
            metrics: self.metrics.clone(),
            ..Fit::new(60, 0.5)
        })
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        out.copy_from_slice(&self.weights);
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        if let Some(missing) = &self.no_evaluation {
            return missing.clone().map_err(anyhow::Error::msg);
        }
        Ok(Some(Evaluation {
            examples: 10,
            loss: f64::from(self.weights[0]),
            correct: self.classifies.then_some(7.0),
            language: !self.classifies,
            metrics: self.metrics.clone(),
        }))
    }
}
