//! What all clients of a run are told when they join, compressed once.

use std::sync::{Mutex, PoisonError};

use fl_proto::{Joined, JoinedRun, ProtocolError};

/// What the clients of a run are told, compressed once.
#[derive(Debug, Default)]
pub(crate) struct SharedReply(Mutex<Option<(u64, JoinedRun)>>);

impl SharedReply {
    /// Only the number of rounds changes while a server runs.
    pub(super) fn of(&self, joined: &Joined) -> Result<JoinedRun, ProtocolError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((rounds, run)) if *rounds == joined.rounds => Ok(run.clone()),
            _ => Ok(kept.insert((joined.rounds, JoinedRun::of(joined)?)).1.clone()),
        }
    }
}
