//! Runs of the same name, after a server was set up again or a client moved to another server. The unsent update of one
//! run is meaningless for the model of another, so its state is moved aside, and restored when its run returns. A run
//! and a client are identified together, by a digest of the client's name and of the instance number that the server draws at its
//! start, so a folder that was copied from another client counts as another run.

use std::path::{Path, PathBuf};

use fl_compress::Digest;
use fl_proto::RunName;

use super::disk::Disk;
use super::run_state::RunState;
use super::used::bytes_below;
use crate::error::Error;

/// Folders of earlier runs that a client keeps: more than a federation begins between two visits of a device.
pub(crate) const DEFAULT_RUNS: usize = 32;

/// Makes the folder of `run` hold the state of this instance, or nothing. `root`: the state folder.
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

/// Removes folders of other runs while they are more than `runs`, or the state folder beside this run has more than `bytes`: those
/// without a memory first, then the ones that were written longest ago. A server may name another run at each join. One with an
/// update that its server has not acknowledged stays, and so does one that cannot be read.
pub(super) fn prune(
    root: &Path,
    current: &RunState,
    kept_aside: Option<&PathBuf>,
    runs: usize,
    bytes: Option<u64>,
) -> Result<(), Error> {
    let disk = current.disk;
    let folders = ["runs", "aside"].map(|at| std::fs::read_dir(root.join(at)));
    let folders = folders.into_iter().flatten().flatten().flatten();
    let others = folders
        .map(|entry| entry.path())
        .filter(|folder| *folder != current.folder && Some(folder) != kept_aside);
    let mut kept = 0;
    let mut settled = Vec::new();
    for folder in others {
        kept += 1;
        let state = RunState { folder, disk };
        let Ok(head) = state.head() else { continue };
        let digest = head
            .as_ref()
            .and_then(|head| head.pending.as_ref())
            .map(|pending| pending.digest);
        let is_settled = digest.is_none_or(|digest| state.ack(digest).is_ok_and(|ack| ack.is_some()));
        if is_settled {
            let written = std::fs::metadata(state.path("memory")).and_then(|about| about.modified());
            // Its local tensors and what its trainer keeps: `aside` has the instance in the folder's name.
            let mut local = state.folder.file_name().unwrap_or_default().to_owned();
            if let Some(head) = head.as_ref().filter(|_| state.folder.starts_with(root.join("runs"))) {
                local.push(format!("-{}", head.instance));
            }
            settled.push((head.is_some(), written.ok(), state.folder, local));
        }
    }
    settled.sort();
    for (_, _, folder, local) in settled {
        let is_full = bytes.is_some_and(|bytes| bytes_below(root, &current.folder) > bytes);
        if kept <= runs && !is_full {
            break;
        }
        remove(&folder)?;
        let of_run = root.join("local").join(local);
        let _ = std::fs::remove_file(of_run.with_added_extension("safetensors"));
        let _ = std::fs::remove_dir_all(of_run.with_added_extension("kept"));
        kept -= 1;
        tracing::warn!(folder = %folder.display(), "the state of an earlier run is removed: `runs` or `disk` in [limits] is reached");
    }
    Ok(())
}

/// As [`prune`], before `run` of this `instance` is entered. Returns the bytes of the state folder beside this run: what cannot be
/// removed counts.
pub(crate) fn make_room(root: &Path, run: &RunName, instance: Digest, disk: Disk, runs: usize, bytes: u64) -> u64 {
    let folder = root.join("runs").join(run.as_str());
    let own = RunState { folder, disk };
    if let Err(error) = prune(root, &own, Some(&aside(root, run, instance)), runs, Some(bytes)) {
        tracing::warn!(%error, "the state of earlier runs stays");
    }
    bytes_below(root, &own.folder)
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
