//! Two runs may have one name: a server was set up anew, or a client moved to another server. What one left unsent means
//! nothing to the other's model, so it is set aside, and it comes back if its own run does. Told apart by the instance,
//! which the server draws when it begins a run.

use std::path::PathBuf;

use fl_compress::Digest;
use fl_proto::RunName;

use super::{RunState, StateDir};
use crate::Error;

impl StateDir {
    /// Makes what is under the name of `run` that of the run of this instance, or nothing.
    ///
    /// # Errors
    /// `State` if the memory there is broken or a folder cannot be moved.
    pub(super) fn settle_owner(&self, state: &RunState, run: &RunName, instance: Digest) -> Result<(), Error> {
        let head = state.head()?;
        if head.is_some_and(|head| head.instance == instance) {
            return Ok(());
        }
        if let Some(head) = head {
            let aside = self.aside(run, head.instance);
            remove(&aside)?;
            self.disk.move_folder(&state.folder, &aside)?;
            tracing::warn!(
                %run,
                was = %head.instance,
                now = %instance,
                pending_round = head.pending.map(|claims| claims.round),
                aside = %aside.display(),
                "the server's run has this name but was begun anew: what compression left unsent for the earlier run, and \
                 an update it may not have received, are set aside and not sent; delete that folder if the earlier run \
                 will not come back",
            );
        }
        let own = self.aside(run, instance);
        if own.is_dir() {
            // What is there has no memory: a model and its step, which can be fetched again.
            remove(&state.folder)?;
            self.disk.move_folder(&own, &state.folder)?;
            tracing::info!(%run, "an earlier run is back: its state is taken up again");
        }
        Ok(())
    }

    fn aside(&self, run: &RunName, instance: Digest) -> PathBuf {
        self.root.join("aside").join(format!("{run}-{instance}"))
    }
}

fn remove(folder: &std::path::Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(folder, "remove", &e)),
        _ => Ok(()),
    }
}
