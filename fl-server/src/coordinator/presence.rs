//! Which clients are connected: a client counts once, whatever the number of its open streams.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::ClientId;

use crate::state_machine::{Millis, Presence};

/// Connected clients, each with its number of watch streams.
#[derive(Debug, Default)]
pub(crate) struct Present {
    streams: BTreeMap<ClientId, usize>,
    /// Until this number of clients is connected, none counts.
    first: usize,
    /// Connected clients that do not count yet.
    held: BTreeSet<ClientId>,
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

    pub(super) fn arrived(&mut self, client: ClientId) {
        *self.streams.entry(client.clone()).or_default() += 1;
        self.held.insert(client);
        if self.held.len() >= self.first {
            self.first = 0;
            for client in std::mem::take(&mut self.held) {
                self.presence.arrived(client);
            }
        }
    }

    pub(super) fn left(&mut self, client: &ClientId, now: Millis) {
        if let Some(streams) = self.streams.get_mut(client) {
            *streams = streams.saturating_sub(1);
            if *streams == 0 {
                self.streams.remove(client);
                self.held.remove(client);
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
}
