//! Bounds on connections: those of the configuration, or less if the system allows fewer open files.

use std::time::Duration;

use fl_proto::open_files;

use crate::config::live::LiveSettings;
use crate::config::server::{PAGE_CONNECTIONS, Tuning};

/// Concurrent connections and calls, at most, and how long they may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Of clients that have shown their certificate.
    pub(crate) clients: usize,
    /// Of one client.
    pub(crate) per_client: usize,
    /// Of those that have shown none.
    pub(crate) strangers: usize,
    /// Of those of one address.
    pub(crate) per_address: usize,
    /// Open calls of one client.
    pub(crate) calls: usize,
    /// Calls in a second of one client.
    pub(crate) call_rate: u32,
    /// Timeout of a client's connection without a call.
    pub(crate) idle: Duration,
}

/// File descriptors for everything but clients' connections and the files of transfers: store, model files, log, admin
/// socket, and the admin page's connections.
const OWN: usize = 64 + PAGE_CONNECTIONS;
/// Least number of connections with which a server is useful.
const LEAST: usize = 4;

impl Room {
    /// The bounds of `settings`, within what the system allows.
    pub(crate) fn now(settings: &LiveSettings) -> Self {
        Self::new(&settings.tuning, open_files())
    }

    /// The bounds of `tuning`, within a limit of `files` open files: enough of these are left for the server's own and
    /// for transfers, or half of them if there are very few.
    pub(crate) fn new(tuning: &Tuning, files: Option<u64>) -> Self {
        let asked = Self {
            clients: tuning.connections,
            per_client: tuning.connections_per_client,
            strangers: tuning.handshakes,
            per_address: tuning.handshakes_per_address,
            calls: tuning.calls_per_client,
            call_rate: tuning.call_rate,
            idle: tuning.idle,
        };
        let Some(files) = files.and_then(|files| usize::try_from(files).ok()) else {
            return asked;
        };
        let reserve =
            OWN + tuning.verify_at_once + 2 * (tuning.transfers_at_once + crate::rpc::transfers::SMALL_AT_ONCE);
        let left = files - reserve.min(files / 2);
        let strangers = asked.strangers.min((left / 4).max(LEAST));
        Self {
            clients: asked.clients.min(left.saturating_sub(strangers).max(LEAST)),
            strangers,
            // One address cannot take all places, unless the configuration says so.
            per_address: asked.per_address.min((strangers / 2).max(LEAST)),
            ..asked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_many_files_the_configuration_counts_and_with_few_a_reserve_is_left() {
        let tuning = Tuning::default();
        let all = Room::new(&tuning, None);
        assert_eq!(Room::new(&tuning, Some(1 << 20)), all);
        assert_eq!((all.clients, all.strangers), (tuning.connections, tuning.handshakes));
        for files in [64, 128, 256, 1_024, 4_096] {
            let room = Room::new(&tuning, Some(files));
            let taken = room.clients + room.strangers;
            assert!(
                taken <= files as usize - (files as usize / 2).min(200),
                "{files}: {room:?}"
            );
            assert!(room.per_address <= room.strangers);
        }
        assert!(
            Room::new(&tuning, Some(128)).clients >= 20,
            "a lowered limit still serves twenty"
        );
        assert!(Room::new(&tuning, Some(1_024)).clients >= 400);
    }
}
