//! The work of a phase that is done outside the state machine.

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::storage::record::Accepted;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    pub client: ClientId,
    pub examples: u64,
    pub frame: Digest,
}

/// Work that the caller does, and repeats after a restart: aggregate these updates and decide on
/// [`Input::RoundResult`](super::Input::RoundResult).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingWork {
    pub round: u64,
    /// The round's updates, by client name.
    pub updates: Vec<Contribution>,
}

impl PendingWork {
    /// `updates` in the order of the clients' names.
    pub(super) fn of<'a>(round: u64, updates: impl Iterator<Item = (&'a ClientId, &'a Accepted)>) -> Self {
        let updates = updates.map(|(client, update)| Contribution {
            client: client.clone(),
            examples: update.examples,
            frame: update.digest,
        });
        Self {
            round,
            updates: updates.collect(),
        }
    }
}
