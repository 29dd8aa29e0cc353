//! Which clients are connected: a client counts once, whatever the number of its open streams.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::{Availability, ClientId};

use crate::state_machine::{Millis, Presence};
use crate::telemetry::event::PausedClient;

#[derive(Debug, Default)]
pub(crate) struct Present {
    streams: BTreeMap<ClientId, usize>,
    /// Until this number of clients is connected, none counts.
    first: usize,
    /// Connected clients that do not count yet.
    held: BTreeSet<ClientId>,
    /// For displays.
    pub(super) paused: BTreeMap<ClientId, PausedClient>,
    pub(super) presence: Presence,
}

impl Present {
    /// No client counts as connected before `first` are.
    pub(crate) fn from(first: usize) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }

    /// A client that watches says whether it is available. A report that was overtaken by the end of its stream counts for nothing.
    pub(super) fn changes(&mut self, client: &ClientId, availability: Availability, now: Millis) {
        if self.streams.contains_key(client) {
            self.reports(client, availability, now);
        }
    }

    /// As [`Present::changes`], of a client that is about to arrive.
    pub(super) fn reports(&mut self, client: &ClientId, availability: Availability, now: Millis) {
        let (reason, until_ms) = match availability {
            Availability::Available => {
                self.paused.remove(client);
                self.presence.resumes(client);
                return;
            }
            Availability::Paused { reason } => (reason, None),
            Availability::NotBefore { left, reason } => {
                let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                (reason, Some(now.saturating_add(left)))
            }
        };
        let paused = PausedClient {
            client: client.to_string(),
            reason,
            until_ms,
        };
        self.paused.insert(client.clone(), paused);
        self.presence.pauses(client.clone());
    }

    pub(super) fn paused(&self) -> Vec<PausedClient> {
        self.paused.values().cloned().collect()
    }

    /// Returns whether it is the client's only stream.
    pub(super) fn arrived(&mut self, client: ClientId) -> bool {
        let streams = self.streams.entry(client.clone()).or_default();
        *streams += 1;
        let is_new = *streams == 1;
        self.held.insert(client);
        if self.held.len() >= self.first {
            self.first = 0;
            for client in std::mem::take(&mut self.held) {
                self.presence.arrived(client);
            }
        }
        is_new
    }

    pub(super) fn left(&mut self, client: &ClientId, now: Millis) {
        if let Some(streams) = self.streams.get_mut(client) {
            *streams = streams.saturating_sub(1);
            if *streams == 0 {
                self.streams.remove(client);
                self.held.remove(client);
                self.paused.remove(client);
                self.presence.left(client, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_several_streams_is_present_once_and_until_the_last_ends() {
        let mut present = Present::default();
        let client: ClientId = "a".parse().unwrap();
        present.arrived(client.clone());
        present.arrived(client.clone());
        assert_eq!(present.presence.connected().len(), 1);
        present.left(&client, 1);
        assert_eq!(present.presence.connected().len(), 1);
        present.left(&client, 2);
        assert!(present.presence.connected().is_empty() && present.streams.is_empty());
        present.left(&client, 3);
        assert_eq!(present.presence.absent_since(&client, 0), Some(2));
    }

    #[test]
    fn no_client_counts_before_the_first_ones_are_there() {
        let clients: Vec<ClientId> = ["a", "b", "c"].map(|name| name.parse().unwrap()).into();
        let mut present = Present::from(2);
        present.arrived(clients[0].clone());
        present.left(&clients[0], 1);
        present.arrived(clients[1].clone());
        assert!(present.presence.connected().is_empty());
        present.arrived(clients[0].clone());
        assert_eq!(present.presence.connected().len(), 2);
        present.left(&clients[0], 2);
        present.arrived(clients[2].clone());
        assert_eq!(present.presence.connected().len(), 2, "later clients count at once");
    }

    #[test]
    fn a_paused_client_is_connected_and_not_available_until_it_says_so_or_leaves() {
        let mut present = Present::default();
        let client: ClientId = "anna".parse().unwrap();
        let not_before = |seconds| Availability::NotBefore {
            left: std::time::Duration::from_secs(seconds),
            reason: "not before 22:00".to_owned(),
        };
        // A client says it before it arrives, so that it is never chosen in between.
        present.reports(&client, not_before(3600), 50_400_000);
        present.arrived(client.clone());
        assert_eq!(
            (present.presence.connected().len(), present.presence.available().len()),
            (1, 0)
        );
        let shown = present.paused().pop().unwrap().to_string();
        assert_eq!(shown, "anna is paused until 15:00:00Z at least: not before 22:00");
        present.reports(&client, Availability::Available, 2);
        assert!(present.presence.available().contains(&client) && present.paused().is_empty());
        present.reports(&client, not_before(1), 3);
        present.left(&client, 4);
        present.changes(&client, not_before(1), 5);
        assert!(present.paused().is_empty());
        present.arrived(client.clone());
        assert!(
            present.presence.available().contains(&client),
            "a new connection begins anew"
        );
    }
}
