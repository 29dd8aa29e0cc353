//! Connections of clients that have a seat.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Accepted, ClientId, Fingerprint, Lifetime, Meter, Role, peer_name, peer_role};
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::server::Connected;

use super::seats::{Call, Seats};
use crate::accounting::edge::{ClosedFor, Open, PortCounters};
use crate::rpc::revocable::Revocable;

/// Gives a client that has shown its certificate a seat.
pub(super) fn seat(
    accepted: Accepted,
    seats: &Arc<Seats>,
    address: SocketAddr,
    counters: &PortCounters,
    open: Open,
) -> Option<Seated> {
    let info = accepted.info();
    let named = peer_name(&info.certificate).and_then(|client| Ok((client, peer_role(&info.certificate)?)));
    let (client, role) = match named {
        Ok(named) => named,
        Err(error) => {
            counters.closed(ClosedFor::Name);
            tracing::warn!(%error, %address, "a certificate of the federation names no client, or an unknown role");
            return None;
        }
    };
    let Some((number, end)) = seats.take(&client, Instant::now()) else {
        tracing::warn!(%client, %address, "closed at once: every place for a client is taken (`connections` in server.toml)");
        return None;
    };
    let caller = Caller {
        certificate: Arc::clone(&info.certificate),
        address: address.ip().to_canonical(),
        role,
        lifetime: Lifetime::of(&info.certificate).ok(),
        fingerprint: Fingerprint::of(&info.certificate),
        meter: Arc::clone(&info.meter),
        client,
        number,
        seats: Arc::clone(seats),
    };
    let why = "the connection's place was given to another one, or it made no call";
    let held = Occupied { caller, _open: open };
    Some(Seated::new(accepted, end, io::ErrorKind::ConnectionAborted, why, held))
}

/// The client at the other end of a connection; an extension of its requests.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The name in its certificate.
    pub(crate) client: ClientId,
    /// The role in its certificate.
    pub(crate) role: Role,
    /// The certificate, DER.
    pub(crate) certificate: Arc<[u8]>,
    pub(crate) address: IpAddr,
    /// The certificate's, if it can be read.
    pub(crate) lifetime: Option<Lifetime>,
    /// Fingerprint of the certificate.
    pub(crate) fingerprint: Fingerprint,
    /// Counts the connection's bytes.
    pub(crate) meter: Arc<Meter>,
    number: u64,
    seats: Arc<Seats>,
}

impl Caller {
    /// How long a new call waits, because the client made many.
    pub(crate) fn wait(&self) -> Duration {
        self.seats.wait(&self.client, Instant::now())
    }

    /// Begins a call on this connection, which is in use until the returned guard is dropped.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the client has too many calls open; `UNAVAILABLE` if the connection is being closed.
    pub(crate) fn call(&self) -> Result<Call, Status> {
        self.seats.call(&self.client, self.number)
    }
}

/// A client's connection. It fails when its seat is taken.
pub(crate) type Seated = Revocable<Accepted, Occupied>;

/// A client's seat, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Occupied {
    caller: Caller,
    _open: Open,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.caller.seats.leave(&self.caller.client, self.caller.number);
    }
}

impl Connected for Seated {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.held().caller.clone()
    }
}
