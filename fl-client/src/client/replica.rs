//! The client's replica of the server's model.

use std::sync::Arc;

use fl_compress::{Digest, FrameKind};
use fl_proto::{Assembler, FramePart, ModelDigest, PartialFrame};

use super::model::Model;
use super::state::ClientState;
use crate::error::Error;
use crate::learner::Progress;
use crate::state::PartialFile;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldModel {
    /// It is that model.
    Wanted,
    /// It is another version; `None` if no model is held.
    Version(Option<u64>),
}

impl ClientState {
    /// Begins with the learner's first weights, if no model is held, and compares the held model with `version`.
    pub(crate) fn compare(
        &mut self,
        version: u64,
        digest: ModelDigest,
        progress: &Arc<Progress>,
    ) -> Result<HeldModel, Error> {
        self.begin(progress)?;
        Ok(if self.holds(version, digest)? {
            HeldModel::Wanted
        } else {
            HeldModel::Version(self.held())
        })
    }

    /// Whether the held model is `version` with this digest. A model of that version with another digest is dropped.
    pub(crate) fn holds(&mut self, version: u64, digest: ModelDigest) -> Result<bool, Error> {
        let keep_every = self.keep_model_every;
        let run = self.run()?;
        let Some(model) = run.model.as_mut().filter(|model| model.version == version) else {
            return Ok(false);
        };
        let found = model.digest();
        if digest != found {
            tracing::warn!(version, %found, wanted = %digest, "the model differs from the server's; dropping it");
            run.model = None;
            return Ok(false);
        }
        run.keep_step();
        if keep_every > 0 && version.is_multiple_of(keep_every)
            || run.model.as_ref().is_some_and(Model::is_costly_to_fetch)
        {
            run.keep_model();
        }
        Ok(true)
    }

    /// Takes the learner's own first weights as model version 0, if no model is held and they equal the server's to the bit.
    pub(crate) fn begin(&mut self, progress: &Arc<Progress>) -> Result<(), Error> {
        if self.run()?.model.is_some() {
            return Ok(());
        }
        let Self {
            run: Some(run), tasks, ..
        } = self
        else {
            return Ok(());
        };
        let values = tasks.learner(&run.joined.task)?.initial(run.joined.seed, progress);
        let initial = run.joined.initial;
        let values = values.filter(|values| Digest::of_f32(values) == initial);
        run.model = values.map(|values| Model::initial(values, initial));
        Ok(())
    }

    pub(crate) fn held(&self) -> Option<u64> {
        self.run.as_ref()?.model.as_ref().map(|model| model.version)
    }

    pub(crate) fn drop_model(&mut self) {
        if let Some(run) = &mut self.run {
            run.model = None;
        }
    }

    /// Applies one frame of a fetch: a snapshot replaces the model, a step is added to the version before it. On an error,
    /// the model is dropped.
    pub(crate) fn apply(&mut self, part: FramePart, kind: FrameKind, frame: Assembler) -> Result<(), Error> {
        let run = self.run()?;
        let applied = frame
            .finish()
            .map_err(|e| e.to_string())
            .and_then(|bytes| run.apply(part.version, kind, bytes));
        applied.map_err(|why| {
            run.model = None;
            run.state.drop_partial_frame();
            Error::Protocol(format!("the frame of model version {}: {why}", part.version))
        })
    }

    /// What an interrupted fetch has left of a frame.
    pub(crate) fn partial_frame(&mut self) -> Result<Option<PartialFrame>, Error> {
        Ok(self.run()?.state.partial_frame())
    }

    /// Begins to keep a frame of which nothing is held.
    pub(crate) fn begin_partial_frame(&mut self, digest: &Digest) -> Result<Option<PartialFile>, Error> {
        Ok(self.run()?.state.begin_partial_frame(digest))
    }

    /// Gives what is held of a frame to `frame`.
    pub(crate) fn resume_partial_frame(
        &mut self,
        partial: PartialFrame,
        frame: &mut Assembler,
    ) -> Result<PartialFile, Error> {
        self.run()?.state.resume_partial_frame(partial, frame)
    }

    /// Keeps a model update that the held version contains, if the run averages versions.
    pub(crate) fn keep_for_average(&mut self, version: u64, frame: &[u8]) -> Result<(), Error> {
        self.run()?.keep_for_average(version, FrameKind::ModelUpdate, frame);
        Ok(())
    }
}
