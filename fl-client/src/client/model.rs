//! A model version as the client holds it: advanced frame by frame, verified by digest.

use fl_compress::{Digest, Frame, FrameHeader, FrameKind, Layout};

use crate::state::{KEPT_FROM, KeptModel, RunState};

/// A model version. The digest is known once it was verified.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) version: u64,
    digest: Option<Digest>,
    pub(super) values: Vec<f32>,
    on_disk: bool,
    /// Bytes of the frames that led here from the version on disk.
    unkept: u64,
    /// The model update that made this version, if updates are encoded against it. Version 0 and snapshots have none.
    pub(super) step: Option<Vec<u8>>,
    /// Whether the step was written to disk, or looked for there.
    step_on_disk: bool,
}

impl From<KeptModel> for Model {
    fn from(kept: KeptModel) -> Self {
        Self {
            digest: Some(kept.digest),
            on_disk: true,
            ..Self::unverified(kept.version, kept.values, None)
        }
    }
}

impl Model {
    /// Version 0, from the learner.
    pub(super) fn initial(values: Vec<f32>, digest: Digest) -> Self {
        Self {
            digest: Some(digest),
            ..Self::unverified(0, values, None)
        }
    }

    fn unverified(version: u64, values: Vec<f32>, step: Option<Vec<u8>>) -> Self {
        Self {
            version,
            digest: None,
            values,
            on_disk: false,
            unkept: 0,
            step,
            step_on_disk: false,
        }
    }

    /// The model after a frame: a snapshot replaces the `held` model, a step is added to the version before it.
    /// `keep_frame`: whether the frame is kept as the model's step.
    pub(super) fn after(
        held: Option<Self>,
        version: u64,
        kind: FrameKind,
        bytes: Vec<u8>,
        layout: &Layout,
        keep_frame: bool,
    ) -> Result<Self, String> {
        let frame = Frame::parse(&bytes, layout).map_err(|e| e.to_string())?;
        let FrameHeader { kind: found, round, .. } = frame.header();
        if (found, round) != (kind, version) {
            return Err(format!("it is a {found:?} of version {round}, not a {kind:?}"));
        }
        let len = bytes.len() as u64;
        let (values, unkept) = match (kind, held) {
            (FrameKind::ModelUpdate, Some(mut model)) if model.version.checked_add(1) == Some(version) => {
                frame.apply(&mut model.values).map_err(|e| e.to_string())?;
                (model.values, model.unkept.saturating_add(len))
            }
            (FrameKind::ModelUpdate, _) => return Err("the version before it is missing".to_owned()),
            (_, held) => {
                let mut values = held.map_or_else(|| vec![0.0; layout.len()], |model| model.values);
                frame.decode(&mut values).map_err(|e| e.to_string())?;
                (values, len)
            }
        };
        Ok(Self {
            unkept,
            ..Self::unverified(version, values, keep_frame.then_some(bytes))
        })
    }

    pub(super) fn digest(&mut self) -> Digest {
        *self.digest.get_or_insert_with(|| Digest::of_f32(&self.values))
    }

    /// Writes the step that made the model to disk, or reads it from there if the model did not come by it. An update can
    /// be encoded without it, so a failure is only logged.
    pub(super) fn keep_step(&mut self, state: &RunState, layout: &Layout) {
        if self.step_on_disk {
            return;
        }
        let Some(digest) = self.digest else { return };
        self.step_on_disk = true;
        match &self.step {
            None => self.step = state.load_step(layout, digest),
            Some(step) => {
                if let Err(error) = state.save_step(digest, step) {
                    tracing::warn!(%error, "the last model update was not kept; a restart may encode the next update without it");
                }
            }
        }
    }

    /// Whether a restart would fetch as many bytes as a quarter of the model again, and enough to notice. Saving the model then writes
    /// at most four bytes for each fetched one.
    pub(super) fn is_costly_to_fetch(&self) -> bool {
        self.unkept >= (self.values.len() as u64).max(KEPT_FROM)
    }

    /// Writes a verified model to disk unless it is there. It can be fetched again, so a failure is only logged.
    pub(super) fn keep(&mut self, state: &RunState) {
        let Some(digest) = self.digest.filter(|_| !self.on_disk) else {
            return;
        };
        match state.save_model(self.version, digest, &self.values) {
            Ok(()) => {
                self.on_disk = true;
                self.unkept = 0;
                // What led to this version is not needed again.
                state.drop_partial_frame();
            }
            Err(error) => tracing::warn!(%error, "the model was not kept; a restart will fetch it again"),
        }
    }
}
