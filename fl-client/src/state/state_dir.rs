//! The state folder of one client.

use std::path::{Path, PathBuf};

use fl_compress::Digest;
use fl_proto::{RunName, UpdateId};

use super::aside::{DEFAULT_RUNS, prune, settle_owner};
use super::disk::Disk;
use super::lock::Lock;
use super::run_state::RunState;
use crate::error::Error;

/// Longest `current` file: a run's name.
const MAX_NAME: u64 = 64;

/// The state folder of one client, locked.
#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    disk: Disk,
    /// Folders of other runs to keep, and bytes of the whole folder.
    most: (usize, Option<u64>),
    _lock: Lock,
}

impl StateDir {
    pub(crate) fn open(root: &Path, sync: bool) -> Result<Self, Error> {
        fl_proto::make_private_folder(root).map_err(|e| Error::io(root, "make the state folder", &e))?;
        Ok(Self {
            root: root.to_owned(),
            disk: Disk { sync },
            most: (DEFAULT_RUNS, None),
            _lock: Lock::take(&root.join("lock"))?,
        })
    }

    /// Keeps the folders of at most so many other runs, and so many bytes.
    pub(crate) fn keeping(mut self, runs: usize, bytes: Option<u64>) -> Self {
        self.most = (runs, bytes);
        self
    }

    /// The update that the server has not acknowledged, of the run that the client joined last.
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
        let Some(metadata) = state.head()?.and_then(|head| head.pending) else {
            return Ok(None);
        };
        if state.ack(metadata.digest)?.is_some() {
            return Ok(None);
        }
        Ok(Some(UpdateId {
            run,
            round: metadata.round,
            attempt: metadata.attempt,
            digest: metadata.digest,
        }))
    }

    /// The state of the run with this name and instance, which becomes the run joined last. The state of another run with the
    /// same name is moved aside.
    pub(crate) fn enter(&self, run: &RunName, instance: Digest) -> Result<RunState, Error> {
        let state = self.run_state(run);
        settle_owner(&self.root, &state, run, instance)?;
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
        // Also for a run of the same name, whose namesake was moved aside.
        prune(&self.root, &state, None, self.most.0, self.most.1)?;
        Ok(state)
    }

    fn run_state(&self, run: &RunName) -> RunState {
        RunState {
            folder: self.root.join("runs").join(run.as_str()),
            disk: self.disk,
        }
    }
}
