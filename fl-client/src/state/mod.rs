//! The client's state on disk: what must not be lost, and what is kept to save a download.
//!
//! ```text
//! state/lock                one process at a time
//! state/current             name of the run joined last
//! state/runs/NAME/memory    residual and pending frame, as they were when the frame was made
//! state/runs/NAME/verdict   what became of that frame; absent as long as nobody knows
//! state/runs/NAME/model     a model version, to be fetched again if it is missing or broken
//! state/runs/NAME/step      the step that made the model, if updates are encoded against it; it may be missing too
//! state/aside/NAME-INSTANCE/  the same four of another run of that name
//! ```
//!
//! `memory` is written before the first byte of its frame is sent, and not again before the next frame: what happens to
//! the frame in between is 43 bytes of `verdict`. So a crash at any point leaves a memory and a question that the server
//! can answer.

mod aside;
mod disk;
mod fields;
mod lock;
mod memory;
mod model;
mod step;
mod verdict;

use std::path::{Path, PathBuf};

use fl_compress::Digest;
use fl_proto::{RunName, UpdateId};

use crate::Error;
use disk::Disk;
use lock::Lock;
pub(crate) use memory::Claims;
pub(crate) use model::KeptModel;

/// Longest `current` file: a run's name.
const MAX_NAME: u64 = 64;

/// The state folder of one client, locked.
#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    disk: Disk,
    _lock: Lock,
}

/// The part of the state folder that belongs to one run.
#[derive(Debug)]
pub(crate) struct RunState {
    folder: PathBuf,
    disk: Disk,
}

impl StateDir {
    /// Makes the folder if it is missing and locks it.
    ///
    /// # Errors
    /// `State` if that fails or another process uses it.
    pub(crate) fn open(root: &Path, sync: bool) -> Result<Self, Error> {
        fl_proto::make_private_folder(root).map_err(|e| Error::io(root, "make the state folder", &e))?;
        Ok(Self {
            root: root.to_owned(),
            disk: Disk { sync },
            _lock: Lock::take(&root.join("lock"))?,
        })
    }

    /// The frame whose fate the client does not know, of the run that it joined last.
    ///
    /// # Errors
    /// `State` if a file is broken or cannot be read.
    pub(crate) fn pending(&self) -> Result<Option<UpdateId>, Error> {
        let path = self.root.join("current");
        let Some(bytes) = self.disk.read(&path, MAX_NAME)? else {
            return Ok(None);
        };
        let name = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|name| name.parse::<RunName>().ok());
        let run =
            name.ok_or_else(|| Error::state(&path, "does not hold the name of a run; delete it, nothing is lost"))?;
        let state = self.run_state(&run);
        let Some(claims) = state.head()?.and_then(|head| head.pending) else {
            return Ok(None);
        };
        if state.verdict(claims.digest)?.is_some() {
            return Ok(None);
        }
        Ok(Some(UpdateId {
            run,
            round: claims.round,
            attempt: claims.attempt,
            digest: claims.digest,
        }))
    }

    /// The state of `run`, the one of this instance; it becomes the run joined last. What another run of the same name
    /// left is set aside.
    ///
    /// # Errors
    /// `State` if its folder cannot be made or moved, or its memory is broken.
    pub(crate) fn enter(&self, run: &RunName, instance: Digest) -> Result<RunState, Error> {
        let state = self.run_state(run);
        self.settle_owner(&state, run, instance)?;
        fl_proto::make_private_folder(&state.folder)
            .map_err(|e| Error::io(&state.folder, "make the run's folder", &e))?;
        let path = self.root.join("current");
        let same = self
            .disk
            .read(&path, MAX_NAME)
            .is_ok_and(|old| old.is_some_and(|old| old == run.as_str().as_bytes()));
        if !same {
            self.disk.replace(&path, &[run.as_str().as_bytes()])?;
        }
        Ok(state)
    }

    fn run_state(&self, run: &RunName) -> RunState {
        RunState {
            folder: self.root.join("runs").join(run.as_str()),
            disk: self.disk,
        }
    }
}

impl RunState {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
