//! A client's learners and its state.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fl_compress::{Ack, Digest};
use fl_proto::{Joined, UpdateId};

use super::pending_update::PendingUpdate;
use super::run::{Run, bind, same_run, state_of};
use crate::base::BaseStore;
use crate::class_names::ClassNames;
use crate::config::ClientConfig;
use crate::error::Error;
use crate::event::Sink;
use crate::state::{Disk, StateDir};
use crate::tasks::Tasks;

#[derive(Debug)]
pub(crate) struct ClientState {
    dir: StateDir,
    pub(super) tasks: Tasks,
    pub(super) events: Sink,
    pub(super) keep_model_every: u64,
    /// Largest frame of an update; no limit if `None`.
    pub(super) max_update_bytes: Option<u64>,
    pub(crate) bases: BaseStore,
    joined: Option<Arc<Joined>>,
    /// The file with those of the joined run.
    base: Option<PathBuf>,
    pub(super) run: Option<Run>,
}

impl ClientState {
    pub(crate) fn open(config: &ClientConfig, tasks: Tasks, events: Sink) -> Result<Self, Error> {
        let disk = Disk { sync: config.sync };
        let mut client = Self::open_at(&config.state, config.sync, tasks, events)?;
        client.dir = client.dir.keeping(config.limits.runs, config.limits.disk);
        client.keep_model_every = config.keep_model_every;
        client.max_update_bytes = config.max_update_bytes;
        client.bases = BaseStore::new(&config.state, config.models.clone(), config.limits.runs, disk);
        Ok(client)
    }

    /// The update that the server has not acknowledged yet: of the joined run, or, before joining, of the run that the
    /// client joined last.
    pub(crate) fn pending(&self) -> Result<Option<UpdateId>, Error> {
        match &self.run {
            Some(run) => Ok(run.pending_update().map(|update| update.header.id)),
            None => self.dir.pending(),
        }
    }

    /// The joined run's unacknowledged update.
    pub(crate) fn pending_update(&self) -> Option<PendingUpdate> {
        self.run.as_ref().and_then(Run::pending_update)
    }

    /// As [`ClientState::open`], with a state folder alone: a model is kept on disk only at the end.
    pub(crate) fn open_at(state: &Path, sync: bool, tasks: Tasks, events: Sink) -> Result<Self, Error> {
        Ok(Self {
            dir: StateDir::open(state, sync)?,
            tasks,
            events,
            keep_model_every: 0,
            max_update_bytes: None,
            bases: BaseStore::new(state, None, usize::MAX, Disk { sync }),
            joined: None,
            base: None,
            run: None,
        })
    }

    /// Switches to the run that was joined and returns its unacknowledged update. `base`: a file with its frozen tensors.
    pub(crate) fn join(&mut self, joined: &Arc<Joined>, base: Option<PathBuf>) -> Result<Option<PendingUpdate>, Error> {
        let is_same = self.joined.as_ref().is_some_and(|before| same_run(before, joined));
        if !is_same || self.base != base {
            (self.joined, self.run) = (None, None);
            self.base = base;
            if let Some(learner) = self.tasks.ready(&joined.task)? {
                bind(learner, joined, self.base.clone())?;
            }
            self.dir.enter(&joined.run, state_of(joined))?;
            self.joined = Some(Arc::clone(joined));
        }
        if self.run.is_none() && self.dir.pending()?.is_some() {
            self.run()?;
        }
        Ok(self.pending_update())
    }

    pub(crate) fn classes(&mut self, task: &str) -> Result<Option<ClassNames>, Error> {
        Ok(self.tasks.learner(task)?.classes())
    }

    /// Installs the server's answer to the pending update: on disk first, then in the encoder's memory. If it cannot be
    /// written, the update stays pending.
    pub(crate) fn settle(&mut self, digest: Digest, verdict: Ack) -> Result<(), Error> {
        self.run()?.settle(digest, verdict)
    }

    /// From the next update on, a frame has at most so many bytes.
    pub(crate) fn limit_updates(&mut self, most: Option<u64>) {
        self.max_update_bytes = most;
    }

    /// Keeps the model for the next start.
    pub(crate) fn close(mut self) {
        if let Some(run) = &mut self.run {
            run.keep_model();
        }
    }

    /// The joined run, loaded from disk on first use.
    pub(super) fn run(&mut self) -> Result<&mut Run, Error> {
        let run = match self.run.take() {
            Some(run) => run,
            None => {
                let joined = self.joined.clone();
                let joined = joined.ok_or_else(|| Error::NotNow("no run is joined".to_owned()))?;
                let layout = bind(self.tasks.learner(&joined.task)?, &joined, self.base.clone())?;
                let state = self.dir.enter(&joined.run, state_of(&joined))?;
                Run::load(joined, layout, state)?
            }
        };
        Ok(self.run.insert(run))
    }
}
