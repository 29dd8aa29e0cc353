//! Learners of tests.

use std::sync::Arc;

use anyhow::ensure;
use fl_client::{Evaluation, Fit, FitPlan, Learner};
use fl_compress::Layout;
use fl_sim::ready::Ready;

/// What a learner without examples does with its weights.
pub(crate) trait Practice: Send + 'static {
    fn fit(&mut self, weights: &mut [f32], plan: &FitPlan) -> anyhow::Result<Fit>;

    fn evaluate(&mut self, _: &[f32]) -> Option<Evaluation> {
        None
    }
}

struct Plain<T> {
    layout: Arc<Layout>,
    weights: Vec<f32>,
    practice: T,
}

/// A learner without examples.
pub(crate) fn plain(layout: Arc<Layout>, practice: impl Practice) -> Box<dyn Learner> {
    Box::new(Plain {
        weights: vec![0.0; layout.len()],
        layout,
        practice,
    })
}

impl<T: Practice> Learner for Plain<T> {
    fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        self.weights = weights.to_vec();
        Ok(())
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        self.practice.fit(&mut self.weights, plan)
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        ensure!(out.len() == self.weights.len(), "another length");
        out.copy_from_slice(&self.weights);
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        Ok(self.practice.evaluate(&self.weights))
    }
}

/// Calls `before` before each training.
pub(crate) struct Before<F> {
    pub(crate) inner: Ready,
    pub(crate) before: F,
}

impl<F: FnMut(&FitPlan) -> anyhow::Result<()> + Send> Learner for Before<F> {
    fn layout(&self) -> Arc<Layout> {
        self.inner.layout()
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        self.inner.load(weights)
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        (self.before)(plan)?;
        self.inner.fit(plan)
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        self.inner.weights(out)
    }

    fn update(&self, loaded: &[f32], out: &mut [f32]) -> anyhow::Result<()> {
        self.inner.update(loaded, out)
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        self.inner.evaluate()
    }
}
