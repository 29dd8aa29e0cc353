//! What a client computes with and must not lose: learner, model, memory, and their state on disk. Never async: every
//! method runs on the blocking pool, called by the worker.

mod evaluate;
mod model;
mod outgoing;
mod train;

use std::path::Path;
use std::sync::Arc;

use fl_compress::{BudgetWatch, Encoder, Layout, Pending};
use fl_proto::{Joined, UpdateId};

use crate::event::Sink;
use crate::state::{Claims, RunState, StateDir};
use crate::{Error, Tasks};
use model::Model;
pub(crate) use outgoing::Outgoing;

/// A client's learners and state.
#[derive(Debug)]
pub(crate) struct Work {
    state: StateDir,
    tasks: Tasks,
    events: Sink,
    keep_model_every: u64,
    joined: Option<Arc<Joined>>,
    run: Option<Run>,
}

/// What it takes to work for a run: made when it is first needed, so that a client that waits holds next to nothing.
#[derive(Debug)]
struct Run {
    joined: Arc<Joined>,
    layout: Arc<Layout>,
    state: RunState,
    encoder: Encoder,
    watch: BudgetWatch,
    open: Option<(Pending, Claims)>,
    model: Option<Model>,
}

impl Work {
    /// Opens and locks the state folder.
    ///
    /// # Errors
    /// `State` if it is in use or cannot be made.
    pub(crate) fn open(
        state: &Path,
        sync: bool,
        keep_model_every: u64,
        tasks: Tasks,
        events: Sink,
    ) -> Result<Self, Error> {
        Ok(Self {
            state: StateDir::open(state, sync)?,
            tasks,
            events,
            keep_model_every,
            joined: None,
            run: None,
        })
    }

    /// The frame whose fate is open: of the run joined, or, before joining, of the run joined last.
    ///
    /// # Errors
    /// `State` if it cannot be read.
    pub(crate) fn pending(&self) -> Result<Option<UpdateId>, Error> {
        match &self.run {
            Some(run) => Ok(run.outgoing().map(|outgoing| outgoing.header.id)),
            None => self.state.pending(),
        }
    }

    /// Turns to the run that was joined and returns the frame whose fate is open.
    ///
    /// # Errors
    /// `Config` or `Learner` if the client cannot do the task or its model is another; `State` if the state is broken.
    pub(crate) fn join(&mut self, joined: &Arc<Joined>) -> Result<Option<Outgoing>, Error> {
        if !self.joined.as_ref().is_some_and(|before| same_run(before, joined)) {
            (self.joined, self.run) = (None, None);
            if let Some(layout) = self.tasks.layout(&joined.task)? {
                check_layout(&joined.layout, &layout, &joined.task)?;
            }
            self.state.enter(&joined.run, joined.instance)?;
            self.joined = Some(Arc::clone(joined));
        }
        if self.run.is_none() && self.state.pending()?.is_some() {
            self.run()?;
        }
        Ok(self.outgoing())
    }

    /// Keeps the model for the next start.
    pub(crate) fn close(mut self) {
        if let Some(run) = &mut self.run {
            run.keep_model();
        }
    }

    /// Everything the run needs, from disk where it is there.
    fn run(&mut self) -> Result<&mut Run, Error> {
        let run = match self.run.take() {
            Some(run) => run,
            None => {
                let joined = self
                    .joined
                    .clone()
                    .ok_or_else(|| Error::NotNow("no run is joined".to_owned()))?;
                let layout = self.tasks.learner(&joined.task)?.layout();
                check_layout(&joined.layout, &layout, &joined.task)?;
                let state = self.state.enter(&joined.run, joined.instance)?;
                let (encoder, open) = state.load_memory(&layout, &joined.uplink)?;
                let model = state.load_model(&layout).map(Model::from);
                Run {
                    joined,
                    layout,
                    state,
                    encoder,
                    watch: BudgetWatch::default(),
                    open,
                    model,
                }
            }
        };
        Ok(self.run.insert(run))
    }
}

/// Whether what was joined before is what was joined now, but for the fate of a frame.
pub(crate) fn same_run(before: &Joined, now: &Joined) -> bool {
    let Joined {
        client,
        run,
        task,
        rounds,
        seed,
        layout,
        training,
        uplink,
        initial,
        instance,
        max_frame: _,
        pending: _,
    } = before;
    (client, run, task, rounds, seed) == (&now.client, &now.run, &now.task, &now.rounds, &now.seed)
        && (layout, training, uplink) == (&now.layout, &now.training, &now.uplink)
        && (initial, instance) == (&now.initial, &now.instance)
}

fn check_layout(run: &Layout, learner: &Layout, task: &str) -> Result<(), Error> {
    if run == learner {
        return Ok(());
    }
    let shape = |t: &fl_compress::Tensor| format!("{} {:?}", t.name, t.shape);
    let mut pairs = run.tensors().iter().zip(learner.tensors());
    let what = match pairs.find(|(a, b)| (&a.name, &a.shape) != (&b.name, &b.shape)) {
        Some((theirs, ours)) => format!("the run has {}, the learner {}", shape(theirs), shape(ours)),
        None => format!(
            "the run has {} tensors, the learner {}",
            run.tensors().len(),
            learner.tensors().len()
        ),
    };
    Err(Error::Learner(format!(
        "the learner of task `{task}` is another model than the run's: {what}"
    )))
}
