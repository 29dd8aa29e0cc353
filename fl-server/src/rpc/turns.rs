//! A client has one call of each kind at a time: a newer call ends the older one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fl_proto::ClientId;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;

use crate::rate_limited::RateLimited;

/// Kinds of calls of which a client has one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Watch,
    Fetch,
    Base,
    Submit,
}

/// The current call of each client and kind.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    calls: BTreeMap<(ClientId, Kind), (u64, oneshot::Sender<()>)>,
    watches: RateLimited,
}

/// The turn of one call. A newer call of the client ends it.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    key: (ClientId, Kind),
    number: u64,
    over: oneshot::Receiver<()>,
}

impl Turns {
    /// Gives the turn to a new call and ends the previous one.
    pub(super) fn take(self: &Arc<Self>, client: &ClientId, kind: Kind) -> Turn {
        let mut table = self.table();
        let (number, key) = (table.next, (client.clone(), kind));
        table.next += 1;
        let (end, over) = oneshot::channel();
        let before = table.calls.insert(key.clone(), (number, end));
        if kind == Kind::Watch
            && before.is_some()
            && let Some(times) = table.watches.due(Instant::now())
        {
            tracing::warn!(
                %client,
                times,
                "watches again, and its older watch has ended: it is back after a break that was not noticed here yet, or \
                 two processes share its certificate and push each other out; give each its own"
            );
        }
        Turn {
            turns: Arc::clone(self),
            key,
            number,
            over,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Waits until a newer call takes the turn, and returns the status for this one. Must not be polled again after
    /// that.
    pub(super) async fn over(&mut self) -> Status {
        let _ = (&mut self.over).await;
        let (client, kind) = (&self.key.0, self.key.1);
        Status::aborted(format!(
            "a newer {} of client `{client}` has taken over; if this is another process, it needs its own certificate",
            match kind {
                Kind::Watch => "watch",
                Kind::Fetch => "download",
                Kind::Base => "download of the base",
                Kind::Submit => "upload",
            }
        ))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = self.turns.table();
        if table
            .calls
            .get(&self.key)
            .is_some_and(|(number, _)| *number == self.number)
        {
            table.calls.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_newer_call_ends_the_older_of_its_kind_and_client_only() {
        let turns = Arc::new(Turns::default());
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut first = turns.take(&a, Kind::Submit);
        let mut others = [turns.take(&b, Kind::Submit), turns.take(&a, Kind::Fetch)];
        let mut second = turns.take(&a, Kind::Submit);
        assert_eq!(first.over().await.code(), Code::Aborted);
        drop(first);
        for turn in others.iter_mut().chain([&mut second]) {
            assert!(
                tokio::time::timeout(std::time::Duration::ZERO, turn.over())
                    .await
                    .is_err()
            );
        }
        drop((others, second));
        assert!(turns.table().calls.is_empty());
    }
}
