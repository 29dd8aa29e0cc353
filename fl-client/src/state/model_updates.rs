//! `model-updates/VERSION`: the frames that made the last versions of the model, where the run averages versions. Optional:
//! without one of them, the average is not evaluated until as many more have come.

use std::path::PathBuf;

use fl_compress::{Frame, FrameKind, Layout};
use fl_proto::max_frame;

use super::run_state::RunState;
use crate::error::Error;
use crate::state::Disk;

const FOLDER: &str = "model-updates";

impl RunState {
    /// The model updates that made `version` and the versions before it, the newest first: `count` of them. `None` if one is
    /// missing or broken.
    pub(crate) fn load_model_updates(&self, layout: &Layout, version: u64, count: usize) -> Option<Vec<Vec<u8>>> {
        let max = max_frame(layout.len(), layout.tensors().len());
        let consequence = "a kept model update is unusable, the average is not evaluated";
        let mut updates = Vec::with_capacity(count);
        for before in 0..count as u64 {
            let of = version.checked_sub(before)?;
            let found = self.optional(&self.model_update(of), max, consequence, |bytes| {
                is_of(&bytes, layout, of).map(|()| Some(bytes))
            });
            updates.push(found?);
        }
        Some(updates)
    }

    /// Keeps the model update that made `version`, and of those before it the newest, `count` in all. Not synced to the
    /// medium.
    pub(crate) fn save_model_update(&self, version: u64, frame: &[u8], count: usize) -> Result<(), Error> {
        let folder = self.path(FOLDER);
        fl_proto::make_private_folder(&folder).map_err(|e| Error::io(&folder, "make the folder", &e))?;
        Disk { sync: false }.replace(&self.model_update(version), &[frame])?;
        self.drop_model_updates(|of| of > version || of + count as u64 <= version);
        Ok(())
    }

    /// Removes the model updates of some versions. One that stays is in the way of nobody.
    pub(crate) fn drop_model_updates(&self, of: impl Fn(u64) -> bool) {
        let Ok(entries) = std::fs::read_dir(self.path(FOLDER)) else {
            return;
        };
        for entry in entries.flatten() {
            let version = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if version.is_none_or(&of) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn model_update(&self, version: u64) -> PathBuf {
        self.path(FOLDER).join(version.to_string())
    }
}

fn is_of(bytes: &[u8], layout: &Layout, version: u64) -> Result<(), String> {
    let header = Frame::parse(bytes, layout).map_err(|e| e.to_string())?.header();
    if (header.kind, header.round) == (FrameKind::ModelUpdate, version) {
        Ok(())
    } else {
        Err(format!("it is a {:?} of version {}", header.kind, header.round))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_compress::{Encoder, FrameHeader, Spec};

    use super::*;

    fn frame(layout: &Arc<Layout>, round: u64) -> Vec<u8> {
        let header = FrameHeader {
            kind: FrameKind::ModelUpdate,
            round,
            seed: 0,
        };
        let mut encoder = Encoder::new(Arc::clone(layout), &Spec::exact()).unwrap();
        let mut update = vec![round as f32; layout.len()];
        encoder.encode(&mut update, header).unwrap().frame
    }

    #[test]
    fn the_last_model_updates_are_kept_and_a_gap_or_a_broken_one_is_noticed() {
        let layout = Arc::new(Layout::new([("a", vec![3])]).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let state = RunState {
            folder: dir.path().to_owned(),
            disk: Disk { sync: false },
        };
        assert_eq!(state.load_model_updates(&layout, 3, 0), Some(vec![]));
        assert_eq!(state.load_model_updates(&layout, 3, 1), None);
        let frames: Vec<_> = (0..8).map(|version| frame(&layout, version)).collect();
        for version in 1..=5 {
            state.save_model_update(version, &frames[version as usize], 3).unwrap();
        }
        let newest = |at: usize| Some(frames[at - 2..=at].iter().rev().cloned().collect());
        assert_eq!(state.load_model_updates(&layout, 5, 3), newest(5));
        assert_eq!(state.load_model_updates(&layout, 5, 4), None, "only 3 are kept");
        // A server that was restored from a backup makes version 4 again.
        state.save_model_update(4, &frames[4], 3).unwrap();
        assert_eq!(state.load_model_updates(&layout, 5, 1), None);
        state.save_model_update(6, &frames[6], 3).unwrap();
        assert_eq!(state.load_model_updates(&layout, 6, 2), None, "version 5 is missing");
        // A frame of another version, a broken one and a foreign file.
        state.save_model_update(7, &frames[2], 3).unwrap();
        assert_eq!(state.load_model_updates(&layout, 7, 1), None);
        state.save_model_update(7, &frames[7][..9], 3).unwrap();
        assert_eq!(state.load_model_updates(&layout, 7, 1), None);
        std::fs::write(dir.path().join("model-updates/note"), b"x").unwrap();
        state.drop_model_updates(|_| true);
        assert_eq!(std::fs::read_dir(dir.path().join("model-updates")).unwrap().count(), 0);
    }
}
