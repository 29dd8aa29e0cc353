//! What a client holds for one run: made on first use, so that a client that waits holds next to nothing.

use std::path::PathBuf;
use std::sync::Arc;

use fl_compress::{Ack, BudgetWatch, Digest, Encoder, FrameKind, Layout, Pending};
use fl_proto::{Joined, StatePolicy};

use super::model::Model;
use super::pending_update::PendingUpdate;
use crate::error::Error;
use crate::learner::{Learner, RunTensors};
use crate::optimizer_state::OptimizerState;
use crate::state::{Owner, RunState, UpdateMetadata};

/// Most threads that encode an update: beyond these, the largest tensor of a model alone determines how long it takes.
const MOST_THREADS: usize = 16;

#[derive(Debug)]
pub(super) struct Run {
    pub(super) joined: Arc<Joined>,
    pub(super) layout: Arc<Layout>,
    pub(super) state: RunState,
    pub(super) encoder: Encoder,
    pub(super) watch: BudgetWatch,
    /// The update that the server has not acknowledged yet.
    pub(super) pending: Option<(Arc<Pending>, UpdateMetadata)>,
    pub(super) model: Option<Model>,
    /// The log has a warning that the learner returns no squared gradients.
    pub(super) warned: bool,
    pub(super) largest_change: f32,
}

impl Run {
    pub(super) fn load(joined: Arc<Joined>, layout: Arc<Layout>, state: RunState) -> Result<Self, Error> {
        let (mut encoder, pending) = state.load_memory(&layout, &joined.uplink)?;
        // Only processors that `limits.cpus` leaves to the client are counted.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        encoder.set_threads(processors.min(MOST_THREADS));
        if joined.training.state == StatePolicy::Kept {
            state.recover_optimizer(owner(&joined, &layout))?;
        }
        let model = state.load_model(&layout).map(Model::from);
        Ok(Self {
            joined,
            layout,
            state,
            encoder,
            watch: BudgetWatch::default(),
            pending: pending.map(|(pending, metadata)| (Arc::new(pending), metadata)),
            model,
            warned: false,
            largest_change: 0.0,
        })
    }

    pub(super) fn pending_update(&self) -> Option<PendingUpdate> {
        let (pending, metadata) = self.pending.as_ref()?;
        Some(PendingUpdate::new(self.joined.run.clone(), pending, metadata))
    }

    pub(super) fn settle(&mut self, digest: Digest, verdict: Ack) -> Result<(), Error> {
        let Some((pending, _)) = self.pending.as_ref().filter(|(pending, _)| pending.digest == digest) else {
            return Ok(());
        };
        self.state.save_ack(digest, verdict)?;
        if self.keeps_moments() {
            self.state.settle_optimizer(verdict)?;
        }
        self.encoder
            .settle(pending, verdict)
            .map_err(|e| Error::Crashed(format!("pending update: {e}")))?;
        self.pending = None;
        Ok(())
    }

    /// Applies a fetched frame. On an error no model is held any more.
    pub(super) fn apply(&mut self, version: u64, kind: FrameKind, frame: Vec<u8>) -> Result<(), String> {
        let keep_frame = self.predicts() && kind == FrameKind::ModelUpdate;
        self.keep_for_average(version, kind, &frame);
        let held = self.model.take();
        self.model = Some(Model::after(held, version, kind, frame, &self.layout, keep_frame)?);
        Ok(())
    }

    /// Keeps a frame for the average of versions, if the run has one. The average is optional, so a failure is only logged.
    pub(super) fn keep_for_average(&self, version: u64, kind: FrameKind, frame: &[u8]) {
        let Some(average) = &self.joined.average else { return };
        let kept = match kind {
            FrameKind::ModelUpdate => self.state.save_model_update(version, frame, average.updates(u64::MAX)),
            // What led to the version before it does not lead to a snapshot.
            _ => {
                self.state.drop_model_updates(|_| true);
                Ok(())
            }
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "a model update was not kept; the average is not evaluated until as many more have come");
        }
    }

    /// Keeps the frame that the next update is encoded against, if the run's memory does so.
    pub(super) fn keep_step(&mut self) {
        if self.predicts()
            && let Some(model) = &mut self.model
        {
            model.keep_step(&self.state, &self.layout);
        }
    }

    pub(super) fn keep_model(&mut self) {
        if let Some(model) = &mut self.model {
            model.keep(&self.state);
        }
    }

    pub(super) fn keeps_moments(&self) -> bool {
        self.joined.training.state == StatePolicy::Kept
    }

    /// The moments before the next training, if they are kept and there are any.
    pub(super) fn moments(&self) -> Result<Option<OptimizerState>, Error> {
        if self.keeps_moments() {
            self.state.load_optimizer(owner(&self.joined, &self.layout))
        } else {
            Ok(None)
        }
    }

    /// Makes the moments after the training of `update` durable, if they are kept and there are any.
    pub(super) fn save_moments(&self, update: Digest, moments: Option<&OptimizerState>) -> Result<(), Error> {
        match moments.filter(|_| self.keeps_moments()) {
            Some(moments) => self
                .state
                .save_next_optimizer(owner(&self.joined, &self.layout), update, moments),
            None => Ok(()),
        }
    }

    /// Whether updates are encoded against the last model update.
    fn predicts(&self) -> bool {
        self.joined.uplink.memory.predicts()
    }
}

fn owner<'a>(joined: &Joined, layout: &'a Layout) -> Owner<'a> {
    Owner {
        instance: state_of(joined),
        layout,
        optimizer: joined.training.optimizer.name(),
    }
}

/// Names the state of this client in this run: a folder that was copied from another client, or restored from its backup, holds
/// updates and personal layers that are not this client's.
pub(crate) fn state_of(Joined { instance, client, .. }: &Joined) -> Digest {
    Digest::of(&[&instance.0, client.as_str().as_bytes()].concat())
}

/// Whether two joins are of the same run with the same settings. Pending updates do not matter.
pub(crate) fn same_run(before: &Joined, now: &Joined) -> bool {
    let Joined {
        client,
        run,
        task,
        rounds,
        seed,
        layout,
        aside,
        base,
        training,
        extra,
        uplink,
        initial,
        instance,
        serves_base: _,
        max_frame: _,
        pending: _,
        minor: _,
        ping_every: _,
        average,
    } = before;
    (client, run, task, rounds, seed) == (&now.client, &now.run, &now.task, &now.rounds, &now.seed)
        && (layout, aside, base) == (&now.layout, &now.aside, &now.base)
        && (training, extra, uplink) == (&now.training, &now.extra, &now.uplink)
        && (initial, instance, average) == (&now.initial, &now.instance, &now.average)
}

/// Binds the learner to the run's tensors. `base`: a file with the frozen ones.
pub(crate) fn bind(learner: &mut dyn Learner, joined: &Joined, base: Option<PathBuf>) -> Result<Arc<Layout>, Error> {
    let layout = Arc::new(joined.layout.clone());
    let tensors = RunTensors {
        run: joined.run.clone(),
        instance: state_of(joined),
        client: joined.client.clone(),
        rounds: joined.rounds,
        seed: joined.seed,
        layout: Arc::clone(&layout),
        aside: joined.aside.clone(),
        base: joined.base,
        base_file: base,
        space: joined.training.space,
    };
    if tensors.space.is_some() && !learner.trains_in_spaces() {
        return Err(Error::Learner(format!(
            "the run sets `train.space`, which needs gradients, and the learner of task `{}` gives none; bind the task to a \
             built-in learner, or start a run without `train.space`",
            joined.task
        )));
    }
    learner.join(&tensors).map_err(|what| {
        Error::Learner(format!(
            "the model of task `{}` differs from the run's model: {what:#}; bind the task to the learner that made the run's \
             first weights",
            joined.task
        ))
    })?;
    Ok(layout)
}
