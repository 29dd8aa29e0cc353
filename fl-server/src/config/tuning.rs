//! Limits of one deployment.

use std::time::Duration;

/// Limits on memory, disk, connections and waiting times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Whether updates stay on disk after a checkpoint has made them unnecessary.
    pub keep_updates: bool,
    /// Rounds between two checkpoints of the model, at least 1.
    pub checkpoint_every: u64,
    /// Frames verified at once, at least 1: each is in memory completely.
    pub verify_at_once: usize,
    /// Large uploads at once, and large downloads at once, at least 1; small transfers do not wait.
    pub transfers_at_once: usize,
    /// Timeout of a transfer without bytes. The received part of an upload is kept, and the upload resumes.
    pub stall: Duration,
    /// Least rate of a transfer in bytes per second; a transfer that is slower for `stall` is aborted.
    pub least_rate: u64,
    /// Connections of clients at once, at least 1; fewer if the system allows fewer open files.
    pub connections: usize,
    /// Connections of one client, at least 1: a further one closes the oldest.
    pub connections_per_client: usize,
    /// Connections at once before the TLS handshake is complete, at least 1.
    pub handshakes: usize,
    /// The same for one address.
    pub handshakes_per_address: usize,
    /// Whether each connection begins with a header of the PROXY protocol, which a proxy in front sends.
    pub proxy_protocol: bool,
    /// Timeout of a TLS handshake, from the accepted connection to the verified certificate.
    pub handshake_timeout: Duration,
    /// Open calls of one client, over all its connections; a further one is refused. At least 4: a client of a run watches,
    /// fetches, submits and renews at once.
    pub calls_per_client: usize,
    /// Calls in a second of one client, at least 1; further ones wait for their turn.
    pub call_rate: u32,
    /// Connections of the enrollment port at once, at least 1.
    pub enroll_connections: usize,
    /// The same for one address.
    pub enroll_connections_per_address: usize,
    /// How long a connection of the enrollment port may last, at most.
    pub enroll_timeout: Duration,
    /// Calls in a second of one address at the enrollment port, at least 1; further ones wait for their turn.
    pub enroll_rate: u32,
    /// Timeout of a client's connection without a call.
    pub idle: Duration,
    /// Time without a byte after which the server pings a client. Another `PING_TIMEOUT` without an answer ends the connection.
    pub ping_every: Duration,
    /// Time for running calls to finish when the server stops.
    pub stop_within: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            keep_updates: false,
            checkpoint_every: 10,
            verify_at_once: 4,
            transfers_at_once: 8,
            stall: Duration::from_secs(30),
            least_rate: 1024,
            connections: 10_000,
            connections_per_client: 4,
            handshakes: 256,
            handshakes_per_address: 128,
            proxy_protocol: false,
            handshake_timeout: fl_proto::CONNECT_TIMEOUT,
            calls_per_client: fl_proto::MAX_STREAMS as usize,
            call_rate: 100,
            enroll_connections: 64,
            enroll_connections_per_address: 16,
            enroll_timeout: Duration::from_secs(20),
            enroll_rate: 10,
            idle: Duration::from_secs(60),
            ping_every: fl_proto::DEFAULT_PING_EVERY,
            stop_within: Duration::from_secs(5),
        }
    }
}
