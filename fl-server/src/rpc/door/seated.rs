//! Connections of clients that have a seat.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fl_proto::{Accepted, Meter};
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::server::Connected;

use super::seats::{Call, Seats};
use crate::accounting::edge::{ClosedFor, Open, PortCounters};
use crate::registry::credential::Credential;
use crate::rpc::revocable::Revocable;

/// Gives a client that has shown its certificate a seat.
pub(super) fn seat(
    accepted: Accepted,
    authorities: &[Vec<u8>],
    seats: &Arc<Seats>,
    address: SocketAddr,
    counters: &PortCounters,
    open: Open,
) -> Option<ClientConnection> {
    let info = accepted.info();
    let credential = match Credential::of(&info.chain, authorities) {
        Ok(credential) => credential,
        Err(error) => {
            counters.closed(ClosedFor::Name);
            tracing::warn!(%error, %address, "a certificate names no client, an unknown role, or an authority that was removed meanwhile");
            return None;
        }
    };
    let client = &credential.client;
    let Some((number, end)) = seats.take(client, Instant::now()) else {
        tracing::warn!(%client, %address, "closed at once: every place for a client is taken (`connections` in server.toml)");
        return None;
    };
    let caller = Caller {
        credential: Arc::new(credential),
        address: address.ip().to_canonical(),
        meter: Arc::clone(&info.meter),
        number,
        seats: Arc::clone(seats),
    };
    let why = "the connection's place was given to another one, it made no call, or the authority was rotated";
    let held = SeatGuard { caller, _open: open };
    Some(ClientConnection::new(
        accepted,
        end,
        io::ErrorKind::ConnectionAborted,
        why,
        held,
    ))
}

/// The client at the other end of a connection; an extension of its requests.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) credential: Arc<Credential>,
    pub(crate) address: IpAddr,
    /// Counts the connection's bytes.
    pub(crate) meter: Arc<Meter>,
    number: u64,
    seats: Arc<Seats>,
}

impl Caller {
    /// Waits for the turn of a new call: at once, unless the client made many.
    pub(crate) async fn turn(&self) {
        self.seats.turn(&self.credential.client).await;
    }

    /// Begins a call on this connection, which is in use until the returned guard is dropped.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the client has too many calls open; `UNAVAILABLE` if the connection is being closed.
    pub(crate) fn call(&self) -> Result<Call, Status> {
        self.seats.call(&self.credential.client, self.number)
    }
}

/// A client's connection. It fails when its seat is taken.
pub(crate) type ClientConnection = Revocable<Accepted, SeatGuard>;

/// A client's seat, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct SeatGuard {
    caller: Caller,
    _open: Open,
}

impl Drop for SeatGuard {
    fn drop(&mut self) {
        let caller = &self.caller;
        caller.seats.leave(&caller.credential.client, caller.number);
    }
}

impl Connected for ClientConnection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.held().caller.clone()
    }
}
