//! Clients that the server turned away: counters by reason and a bounded list, for `status`, the page and `/metrics`.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::accounting::labels::labels;
use crate::clock::Millis;

/// Entries kept, at most; the newest first.
const KEPT: usize = 100;
/// Least time between two warnings about one client.
const AGAIN_AFTER: Millis = 600_000;
/// Warnings in all within [`WINDOW`]: a scanner with many addresses must not fill the log.
const WARNINGS: u32 = 20;
const WINDOW: Millis = 60_000;

labels! {
    /// Why a client cannot take part: the label of `fl_joins_refused_total`.
    TurnedFor {
        /// Its name is in the list of revoked clients.
        Revoked = "revoked",
        Certificate = "certificate",
        /// It has no learner for the run's task.
        Task = "task",
        /// Its learner is for another model, or cannot be made.
        Learner = "learner",
        /// The client left because of another failure that a person has to fix.
        Failure = "failure",
        /// It speaks another version of the protocol.
        Protocol = "protocol",
        /// It finished no TLS handshake, or there was no room for one.
        Stranger = "stranger",
    }
}

/// A client that was turned away, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TurnedAway {
    /// The name in its certificate, or its address.
    pub(crate) client: String,
    pub(crate) reason: String,
    /// For a person.
    pub(crate) why: String,
    pub(crate) times: u64,
    pub(crate) at_ms: Millis,
    #[serde(skip)]
    warned: Millis,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TurnedAwayList {
    pub(crate) list: VecDeque<TurnedAway>,
    counts: [u64; TurnedFor::ALL.len()],
    /// Since when warnings are counted, and how many there were.
    warnings: (Millis, u32),
}

impl TurnedAwayList {
    /// Number of times that clients were turned away, by reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (TurnedFor, u64)> {
        TurnedFor::ALL.into_iter().zip(self.counts)
    }

    /// Adds an entry. Returns whether to warn.
    pub(crate) fn add(&mut self, client: &str, reason: TurnedFor, why: &str, now: Millis) -> bool {
        self.counts[reason as usize] += 1;
        let label = reason.label();
        let known = self
            .list
            .iter()
            .position(|entry| entry.client == client && entry.reason == label);
        let mut entry = known.and_then(|at| self.list.remove(at)).unwrap_or_else(|| TurnedAway {
            client: client.to_owned(),
            reason: label.to_owned(),
            why: String::new(),
            times: 0,
            at_ms: now,
            warned: 0,
        });
        why.clone_into(&mut entry.why);
        entry.times += 1;
        entry.at_ms = now;
        let due = entry.times == 1 || now.saturating_sub(entry.warned) >= AGAIN_AFTER;
        let warns = due && self.within_limit(now);
        if warns {
            entry.warned = now;
        }
        self.list.push_front(entry);
        self.list.truncate(KEPT);
        warns
    }

    fn within_limit(&mut self, now: Millis) -> bool {
        let (since, count) = &mut self.warnings;
        if now.saturating_sub(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= WARNINGS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_tries_again_and_again_is_warned_about_every_ten_minutes() {
        let mut turned = TurnedAwayList::default();
        let warned: Vec<bool> = [0, 1, 599_999, 600_000, 600_001]
            .into_iter()
            .map(|now| turned.add("carl", TurnedFor::Revoked, "revoked", now))
            .collect();
        assert_eq!(warned, [true, false, false, true, false]);
        assert!(
            turned.add("carl", TurnedFor::Task, "task", 600_002),
            "for another reason"
        );
        assert_eq!((turned.list.len(), turned.list[1].times), (2, 5));
        let counts: Vec<u64> = turned.counts().map(|(_, count)| count).collect();
        assert_eq!(counts, [5, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn many_strangers_fill_neither_memory_nor_log() {
        let mut turned = TurnedAwayList::default();
        let warned = (0..10_000).filter(|i| turned.add(&format!("10.0.0.{i}"), TurnedFor::Certificate, "", 5));
        assert_eq!(warned.count(), WARNINGS as usize);
        assert_eq!(
            (turned.list.len(), turned.list[0].client.as_str()),
            (KEPT, "10.0.0.9999")
        );
        assert!(turned.add("anna", TurnedFor::Certificate, "", 5 + WINDOW));
    }
}
