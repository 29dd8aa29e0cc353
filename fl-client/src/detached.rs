//! A client without a connection: the same replica, learner, encoder and state as of [`run`](crate::run); its caller carries
//! the messages.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fl_compress::{Ack, Digest, FrameKind};
use fl_proto::{Assembler, EvaluationReport, FramePart, Joined, ModelDigest, UpdateHeader, max_frame};
use tokio::sync::watch;

use crate::client::{ClientState, PendingUpdate, RoundRequest};
use crate::error::Error;
use crate::event::Sink;
use crate::learner::Progress;
use crate::tasks::Tasks;

/// A client without a connection. Every method blocks.
#[derive(Debug)]
pub struct DetachedClient {
    client: ClientState,
    joined: Arc<Joined>,
    max: u64,
}

impl DetachedClient {
    /// A client that has `joined` a run. Its state is in the folder `state` and does not survive a power loss.
    ///
    /// # Errors
    /// `State` if the folder is in use, broken, or holds an update that was not acknowledged; `Config` or `Learner` if the
    /// client cannot do the run's task.
    pub fn join(state: &Path, tasks: Tasks, joined: Joined) -> Result<Self, Error> {
        let mut client = ClientState::open_at(state, false, tasks, Sink::new(drop))?;
        let joined = Arc::new(joined);
        if client.join(&joined, None)?.is_some() {
            return Err(Error::state(
                state,
                "holds an update of another run; choose another folder",
            ));
        }
        let max = max_frame(joined.layout.len(), joined.layout.tensors().len());
        Ok(Self { client, joined, max })
    }

    /// Version of the held model; the learner's own first weights if it can make them.
    ///
    /// # Errors
    /// `Config` or `Learner` if there is no learner.
    pub fn held(&mut self) -> Result<Option<u64>, Error> {
        self.client.begin(&Arc::default())?;
        Ok(self.client.held())
    }

    /// Whether the held model is `version` with this digest; a model of that version with another digest is dropped.
    ///
    /// # Errors
    /// `State` if the run's state cannot be read.
    pub fn holds(&mut self, version: u64, digest: ModelDigest) -> Result<bool, Error> {
        self.client.holds(version, digest)
    }

    /// Applies one frame: a snapshot replaces the model, a model update is added to the version before it.
    ///
    /// # Errors
    /// `Protocol` if the frame is broken or not of that version.
    pub fn apply(&mut self, version: u64, kind: FrameKind, bytes: Bytes) -> Result<(), Error> {
        let len = bytes.len() as u64;
        let digest = Digest::of(&bytes);
        let mut frame = Assembler::new(len, self.max, digest)?;
        frame.push(bytes);
        self.client.apply(FramePart { version, len, digest }, kind, frame)
    }

    /// Keeps a model update that the held version contains, for the average of the last versions: what a client that applied
    /// a snapshot is without. In the order of the versions.
    ///
    /// # Errors
    /// `State` if the run's state cannot be read.
    pub fn keep_for_average(&mut self, version: u64, frame: &[u8]) -> Result<(), Error> {
        self.client.keep_for_average(version, frame)
    }

    /// Evaluates the held model; `None` without held-out examples.
    ///
    /// # Errors
    /// `Learner` if the evaluation fails.
    pub fn evaluate(&mut self) -> Result<Option<EvaluationReport>, Error> {
        let report = self.client.evaluate(&Arc::<Progress>::default())?;
        Ok(report.map(|(version, evaluation)| evaluation.report(&self.joined.run, version)))
    }

    /// Trains from the held model in `attempt` of `round`. `budget`: bytes of the frame, in place of the run's budget.
    /// `bandwidth`: rate of its link in millionths of the median of the cohort. The update is pending until
    /// [`DetachedClient::settle`].
    ///
    /// # Errors
    /// `Learner` if training or encoding fails; `State` if the update cannot be stored.
    pub fn train(
        &mut self,
        round: u64,
        attempt: u32,
        budget: Option<u64>,
        bandwidth: Option<u32>,
    ) -> Result<(UpdateHeader, Bytes), Error> {
        let request = RoundRequest {
            attempt,
            budget,
            bandwidth,
        };
        let (_, asked) = watch::channel(request);
        let PendingUpdate { header, frame } = self.client.train(round, &asked, None, &Arc::default())?;
        Ok((header, frame))
    }

    /// Installs the answer to the pending update with this digest.
    ///
    /// # Errors
    /// `State` if the answer cannot be stored.
    pub fn settle(&mut self, digest: Digest, answer: Ack) -> Result<(), Error> {
        self.client.settle(digest, answer)
    }
}
