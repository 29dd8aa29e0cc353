//! Which clients are connected: a client counts once, whatever the number of its open streams.

use std::collections::BTreeMap;

use fl_proto::ClientId;

use crate::state_machine::{Millis, Presence};

/// Connected clients, each with its number of watch streams.
#[derive(Debug, Default)]
pub(crate) struct Present {
    streams: BTreeMap<ClientId, usize>,
    pub(super) presence: Presence,
}

impl Present {
    pub(super) fn arrived(&mut self, client: ClientId) {
        self.presence.arrived(client.clone());
        *self.streams.entry(client).or_default() += 1;
    }

    pub(super) fn left(&mut self, client: &ClientId, now: Millis) {
        if let Some(streams) = self.streams.get_mut(client) {
            *streams = streams.saturating_sub(1);
            if *streams == 0 {
                self.streams.remove(client);
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
}
