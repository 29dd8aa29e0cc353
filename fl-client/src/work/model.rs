//! The model as the client holds it: brought forward frame by frame, proved by digest.

use fl_compress::{Digest, Frame, FrameHeader, FrameKind, Memory};
use fl_proto::{Assembler, FramePart};

use super::{Run, Work};
use crate::Error;
use crate::state::KeptModel;

/// A model version; the digest is known once it was checked.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) version: u64,
    digest: Option<Digest>,
    pub(super) values: Vec<f32>,
    kept: bool,
    /// The frame of the step that made it, if updates are encoded against that. None of version 0 and of a snapshot.
    pub(super) step: Option<Vec<u8>>,
    /// Whether the step is on disk, or was looked for there.
    step_kept: bool,
}

impl From<KeptModel> for Model {
    fn from(
        KeptModel {
            version,
            digest,
            values,
        }: KeptModel,
    ) -> Self {
        Self {
            version,
            digest: Some(digest),
            values,
            kept: true,
            step: None,
            step_kept: false,
        }
    }
}

impl Work {
    /// Whether the model held is `version` with this digest. A model of that version with another digest is dropped.
    ///
    /// # Errors
    /// `NotNow` if no run is joined.
    pub(crate) fn holds(&mut self, version: u64, digest: Digest) -> Result<bool, Error> {
        let keep_every = self.keep_model_every;
        let run = self.run()?;
        let Some(model) = run.model.as_mut().filter(|model| model.version == version) else {
            return Ok(false);
        };
        let found = *model.digest.get_or_insert_with(|| Digest::of_f32(&model.values));
        if found != digest {
            tracing::warn!(version, %found, wanted = %digest, "model differs from the server's, dropping it");
            run.model = None;
            return Ok(false);
        }
        run.keep_step();
        if keep_every > 0 && version.is_multiple_of(keep_every) {
            run.keep_model();
        }
        Ok(true)
    }

    /// Makes model version 0 from the run's seed, if no model is held and the learner's is the server's to the bit.
    ///
    /// # Errors
    /// `Config` or `Learner` if there is no learner; `NotNow` if no run is joined.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        if self.run()?.model.is_some() {
            return Ok(());
        }
        let Self {
            run: Some(run), tasks, ..
        } = self
        else {
            return Ok(());
        };
        let values = tasks.learner(&run.joined.task)?.initial(run.joined.seed);
        if let Some(values) = values.filter(|values| Digest::of_f32(values) == run.joined.initial) {
            run.model = Some(Model {
                version: 0,
                digest: Some(run.joined.initial),
                values,
                kept: false,
                step: None,
                step_kept: false,
            });
        }
        Ok(())
    }

    /// Version of the model held.
    pub(crate) fn held(&self) -> Option<u64> {
        self.run.as_ref()?.model.as_ref().map(|model| model.version)
    }

    /// Forgets the model.
    pub(crate) fn drop_model(&mut self) {
        if let Some(run) = &mut self.run {
            run.model = None;
        }
    }

    /// Applies one frame of a fetch: a snapshot replaces the model, a step is added to the version before it.
    ///
    /// # Errors
    /// `Protocol` if the frame is broken or not what its header says; the model is dropped then.
    pub(crate) fn apply(&mut self, part: FramePart, kind: FrameKind, frame: Assembler) -> Result<(), Error> {
        let run = self.run()?;
        let applied = frame
            .finish()
            .map_err(|e| e.to_string())
            .and_then(|bytes| run.apply(part.version, kind, bytes));
        applied.map_err(|why| {
            run.model = None;
            Error::Protocol(format!("the frame of model version {}: {why}", part.version))
        })
    }
}

impl Run {
    fn apply(&mut self, version: u64, kind: FrameKind, bytes: Vec<u8>) -> Result<(), String> {
        let frame = Frame::parse(&bytes, &self.layout).map_err(|e| e.to_string())?;
        let FrameHeader { kind: found, round, .. } = frame.header();
        if (found, round) != (kind, version) {
            return Err(format!("it is a {found:?} of version {round}, not a {kind:?}"));
        }
        let values = match (kind, self.model.take()) {
            (FrameKind::Step, Some(mut model)) if model.version.checked_add(1) == Some(version) => {
                frame.accumulate(1.0, &mut model.values).map_err(|e| e.to_string())?;
                model.values
            }
            (FrameKind::Step, _) => return Err("the version before it is missing".to_owned()),
            (_, old) => {
                let mut values = old.map_or_else(|| vec![0.0; self.layout.len()], |model| model.values);
                frame.decode(&mut values).map_err(|e| e.to_string())?;
                values
            }
        };
        let predicts = self.predicts() && kind == FrameKind::Step;
        self.model = Some(Model {
            version,
            digest: None,
            values,
            kept: false,
            step: predicts.then_some(bytes),
            step_kept: false,
        });
        Ok(())
    }

    /// Whether updates are encoded against the last step.
    fn predicts(&self) -> bool {
        self.joined.uplink.memory == Memory::Cafe
    }

    /// Writes the step that made the model to disk; or, if the model did not come by it, takes it from there. It can be
    /// done without, so a failure is only logged.
    fn keep_step(&mut self) {
        let predicts = self.predicts();
        let Some(model) = self.model.as_mut().filter(|model| predicts && !model.step_kept) else {
            return;
        };
        let Some(digest) = model.digest else { return };
        model.step_kept = true;
        match &model.step {
            None => model.step = self.state.load_step(&self.layout, digest),
            Some(step) => {
                if let Err(error) = self.state.save_step(digest, step) {
                    tracing::warn!(%error, "step is not kept, a restart may encode the next update without it");
                }
            }
        }
    }

    /// Writes the model to disk if it was checked and is not there yet; it can be fetched again, so a failure is only
    /// logged.
    pub(super) fn keep_model(&mut self) {
        let Some(model) = self.model.as_mut().filter(|model| !model.kept) else {
            return;
        };
        let Some(digest) = model.digest else { return };
        match self.state.save_model(model.version, digest, &model.values) {
            Ok(()) => model.kept = true,
            Err(error) => tracing::warn!(%error, "model is not kept, a restart will fetch it again"),
        }
    }
}
