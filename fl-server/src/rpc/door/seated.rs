//! Connections of clients that have a seat.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fl_proto::{Accepted, ClientId, Fingerprint, Lifetime, Meter, Role, peer_name, peer_role};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::server::Connected;

use super::seats::{Call, Seats};
use crate::accounting::edge::{ClosedFor, Open, PortCounters};

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
    Some(Seated {
        io: accepted,
        caller,
        end: Some(end),
        _open: open,
    })
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
#[derive(Debug)]
pub(crate) struct Seated {
    io: Accepted,
    caller: Caller,
    /// Completes when the seat is taken; `None` once it has.
    end: Option<oneshot::Receiver<()>>,
    _open: Open,
}

impl Seated {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(end) = &mut self.end
            && Pin::new(end).poll(cx).is_pending()
        {
            return Ok(());
        }
        self.end = None;
        Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the connection's place was given to another one, or it made no call",
        ))
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.caller.seats.leave(&self.caller.client, self.caller.number);
    }
}

impl Connected for Seated {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Seated {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Seated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
