//! Runs of the same name, after a server was set up again or a client moved to another server. The unsent update of one
//! run is meaningless for the model of another, so its state is moved aside, and restored when its run returns. A run
//! and a client are identified together, by a digest of the client's name and of the instance number that the server draws at its
//! start, so a folder that was copied from another client counts as another run.

use std::path::{Path, PathBuf};

use fl_compress::Digest;
use fl_proto::RunName;

use super::run_state::RunState;
use crate::error::Error;

/// Makes the folder of `run` hold the state of this instance, or nothing. `root`: the state folder.
///
/// # Errors
/// `State` if the memory in the folder is broken or a folder cannot be moved.
pub(super) fn settle_owner(root: &Path, state: &RunState, run: &RunName, instance: Digest) -> Result<(), Error> {
    let head = state.head()?;
    if head.as_ref().is_some_and(|head| head.instance == instance) {
        return Ok(());
    }
    let disk = state.disk;
    if let Some(head) = head {
        let aside = aside(root, run, head.instance);
        remove(&aside)?;
        disk.move_folder(&state.folder, &aside)?;
        tracing::warn!(
            %run,
            was = %head.instance,
            now = %instance,
            pending_round = head.pending.map(|metadata| metadata.round),
            aside = %aside.display(),
            "the state folder holds another run of this name, or this run of another client: its residual, and an update that \
             the server may not have received, are moved aside and not sent; delete that folder if that run will not return",
        );
    }
    let own = aside(root, run, instance);
    if own.is_dir() {
        // The folder has no memory, so it holds at most a model and its step, which can be fetched again.
        remove(&state.folder)?;
        disk.move_folder(&own, &state.folder)?;
        tracing::info!(%run, "an earlier run has returned: its state is restored");
    }
    Ok(())
}

fn aside(root: &Path, run: &RunName, instance: Digest) -> PathBuf {
    root.join("aside").join(format!("{run}-{instance}"))
}

fn remove(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(folder, "remove", &e)),
        _ => Ok(()),
    }
}
