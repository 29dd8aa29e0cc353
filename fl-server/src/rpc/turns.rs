//! A client has one call of each kind at a time: a newer call ends the older one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fl_proto::ClientId;
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tonic::Status;

use crate::lock::lock;
use crate::rate_limited::LogLimit;
use crate::rpc::admission::CallKind;

#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    calls: BTreeMap<(ClientId, CallKind), (u64, oneshot::Sender<()>)>,
    watches: LogLimit,
}

/// The turn of one call. A newer call of the client ends it, and that the client is not admitted any more.
pub(super) struct Turn {
    turns: Arc<Turns>,
    key: (ClientId, CallKind),
    number: u64,
    over: oneshot::Receiver<()>,
    admit: Admit,
    look: Interval,
}

pub(super) type Admit = Box<dyn Fn() -> Result<(), Status> + Send + Sync>;

/// How often to check that a client whose call lasts is still admitted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Turns {
    /// Gives the turn to a new call and ends the previous one of its kind.
    pub(super) fn take(self: &Arc<Self>, client: &ClientId, kind: CallKind, admit: Admit) -> Turn {
        let mut table = lock(&self.0);
        let number = table.next;
        let key = (client.clone(), kind);
        table.next += 1;
        let (end, over) = oneshot::channel();
        let before = table.calls.insert(key.clone(), (number, end));
        if kind == CallKind::Watch
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
        let mut look = tokio::time::interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Turn {
            turns: Arc::clone(self),
            key,
            number,
            over,
            admit,
            look,
        }
    }
}

impl Turn {
    /// Waits until a newer call takes the turn or the client is not admitted any more, and returns the status for this one. Must
    /// not be polled again after that.
    pub(super) async fn over(&mut self) -> Status {
        loop {
            tokio::select! {
                _ = &mut self.over => break,
                _ = self.look.tick() => if let Err(status) = (self.admit)() {
                    return status;
                }
            }
        }
        let (client, kind) = &self.key;
        Status::aborted(format!(
            "a newer {} of client `{client}` has taken over; if this is another process, it needs its own certificate",
            match kind {
                CallKind::Watch => "watch",
                CallKind::Fetch => "download",
                CallKind::FetchBase => "download of the base",
                CallKind::Submit => "upload",
                _ => "call",
            }
        ))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = lock(&self.turns.0);
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
        let take = |client, kind| turns.take(client, kind, Box::new(|| Ok(())));
        let mut first = take(&a, CallKind::Submit);
        let mut others = [take(&b, CallKind::Submit), take(&a, CallKind::Fetch)];
        let mut second = take(&a, CallKind::Submit);
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
        assert!(lock(&turns.0).calls.is_empty());
    }
}
