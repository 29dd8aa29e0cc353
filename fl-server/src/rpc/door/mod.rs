//! Takes connections from the listener and hands those of certified clients to the calls.
//!
//! A connection is a *stranger* until its TLS handshake has proved a certificate of the federation. Strangers have
//! places of their own, bounded in total and by address, and keep them for at most [`fl_proto::CONNECT_TIMEOUT`]; so
//! strangers take no place from a client, whatever their number. Clients have *seats*: bounded in total and by
//! certificate, newest wins.

mod lobby;
mod room;
mod seats;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fl_proto::{Accepted, ClientId, Fingerprint, Meter, Role, peer_expiry, peer_name, peer_role};
use rustls::ServerConfig;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::server::Connected;

use crate::accounting::connections::Connections;
use crate::rate_limited::RateLimited;
use lobby::{Entry, Lobby};
pub(crate) use room::Room;
pub(crate) use seats::{Call, Seats};

/// Connections of clients on their way to the calls.
pub(crate) type Incoming = ReceiverStream<io::Result<Seated>>;

/// The listener and its connections.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    /// That of new connections.
    tls: watch::Receiver<Arc<ServerConfig>>,
    traffic: Arc<Connections>,
    seats: Arc<Seats>,
    lobby: Lobby<Stranger>,
    handshakes: JoinSet<u64>,
    clients: mpsc::Sender<io::Result<Seated>>,
    /// A client's connection without a call is closed after this time.
    idle: Duration,
    turned_away: TurnAway,
    cannot_accept: RateLimited,
}

/// Records a connection that does not become a client's.
#[derive(Clone)]
pub(crate) struct TurnAway(Arc<LogEntry>);

type LogEntry = dyn Fn(Nobody, &str) + Send + Sync;

/// The owner of a connection that did not become a client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nobody {
    /// The certificate is missing, of another authority, or expired; only the address is known.
    Uncertified(IpAddr),
    /// The TLS handshake did not finish, or there was no place for it.
    Stranger,
}

impl TurnAway {
    /// `note` gets the connection's owner, and a sentence why it was turned away.
    pub(crate) fn new(note: impl Fn(Nobody, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(note))
    }
}

impl fmt::Debug for TurnAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TurnAway")
    }
}

/// A connection in the handshake.
#[derive(Debug)]
struct Stranger {
    meter: Arc<Meter>,
    handshake: AbortHandle,
}

impl lobby::Waiting for Stranger {
    fn has_spoken(&self) -> bool {
        self.meter.read() > 0
    }
}

/// Connections that wait for the gRPC server, at most: it takes them at once.
const QUEUE: usize = 16;
/// How often to close idle connections.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a failed accept: the process has no file descriptor left.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

impl Door {
    /// A door for `listener`, and the stream of its clients' connections.
    pub(crate) fn new(
        listener: TcpListener,
        tls: watch::Receiver<Arc<ServerConfig>>,
        traffic: Arc<Connections>,
        room: &Room,
        idle: Duration,
        turned_away: TurnAway,
    ) -> (Self, Arc<Seats>, Incoming) {
        let (clients, incoming) = mpsc::channel(QUEUE);
        let seats = Arc::new(Seats::new(room.clients, room.per_client));
        let door = Self {
            listener,
            tls,
            traffic,
            seats: Arc::clone(&seats),
            lobby: Lobby::new(room.strangers, room.per_address),
            handshakes: JoinSet::new(),
            clients,
            idle,
            turned_away,
            cannot_accept: RateLimited::default(),
        };
        (door, seats, ReceiverStream::new(incoming))
    }

    /// Accepts connections until the gRPC server takes no more.
    pub(crate) async fn keep(mut self) {
        let mut look = tokio::time::interval(POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut paused = None;
        loop {
            let pause = async {
                match paused {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.clients.closed() => return,
                Some(done) = self.handshakes.join_next() => {
                    // An evicted connection has left the lobby already.
                    if let Ok(number) = done {
                        self.lobby.leave(number);
                    }
                }
                accepted = self.listener.accept(), if paused.is_none() => match accepted {
                    Ok((io, address)) => self.enter(io, address),
                    Err(error) => paused = self.cannot_accept(&error),
                },
                () = pause => paused = None,
                now = look.tick() => {
                    let cut = self.seats.cut_idle(now, self.idle);
                    if cut > 0 {
                        tracing::info!(connections = cut, "closed connections of clients that made no call");
                    }
                }
            }
        }
    }

    /// Begins the handshake of a new connection, if there is a place for it or one that it may take.
    fn enter(&mut self, io: TcpStream, address: SocketAddr) {
        match self.lobby.enter(Instant::now(), address.ip()) {
            Entry::Full => {
                (self.turned_away.0)(
                    Nobody::Stranger,
                    &format!("{address} was closed at once: as many connections as fit are in their handshake"),
                );
                return;
            }
            Entry::Instead(stranger) => {
                stranger.handshake.abort();
                (self.turned_away.0)(
                    Nobody::Stranger,
                    &format!("the oldest connection without a certificate was closed, to make room for {address}"),
                );
            }
            Entry::Room => {}
        }
        let meter = Arc::new(Meter::within(Arc::clone(self.traffic.total())));
        self.traffic.connected(Arc::clone(&meter));
        let number = self.lobby.next_number();
        let (tls, seats, clients) = (
            Arc::clone(&self.tls.borrow()),
            Arc::clone(&self.seats),
            self.clients.clone(),
        );
        let turned_away = self.turned_away.clone();
        let counted = Arc::clone(&meter);
        let handshake = self.handshakes.spawn(async move {
            match fl_proto::accept(io, address, counted, tls).await {
                Ok(accepted) => {
                    if let Some(seated) = seat(accepted, &seats, address) {
                        // The gRPC server may be stopping.
                        let _ = clients.send(Ok(seated)).await;
                    }
                }
                Err(error) if is_about_the_certificate(&error) => {
                    let why = format!("the TLS handshake failed: {error}");
                    (turned_away.0)(Nobody::Uncertified(address.ip()), &why);
                }
                Err(error) => {
                    let why = format!("no TLS handshake with {address}: {error}");
                    (turned_away.0)(Nobody::Stranger, &why);
                }
            }
            number
        });
        self.lobby
            .waits(Instant::now(), address.ip(), Stranger { meter, handshake });
    }

    /// Handles a failed accept: the listener stays open, and the oldest stranger is evicted if the process has no file
    /// descriptor left. Returns until when to wait.
    fn cannot_accept(&mut self, error: &io::Error) -> Option<Instant> {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            return None;
        }
        if let Some(stranger) = self.lobby.oldest() {
            stranger.handshake.abort();
        }
        if let Some(times) = self.cannot_accept.due(Instant::now()) {
            tracing::warn!(%error, times, "cannot accept connections at the moment; raise the limit of open files (ulimit -n)");
        }
        Some(Instant::now() + RETRY_INTERVAL)
    }
}

/// Whether the handshake failed because the client's certificate is missing, or not one of this federation.
fn is_about_the_certificate(error: &io::Error) -> bool {
    use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(InvalidCertificate(_) | NoCertificatesPresented))
}

/// Gives a client that has shown its certificate a seat.
fn seat(accepted: Accepted, seats: &Arc<Seats>, address: SocketAddr) -> Option<Seated> {
    let info = accepted.info();
    let named = peer_name(&info.certificate).and_then(|client| Ok((client, peer_role(&info.certificate)?)));
    let (client, role) = match named {
        Ok(named) => named,
        Err(error) => {
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
        ends: peer_expiry(&info.certificate).ok(),
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
    /// When the certificate expires, if that can be read.
    pub(crate) ends: Option<OffsetDateTime>,
    /// Fingerprint of the certificate.
    pub(crate) fingerprint: Fingerprint,
    /// Counts the connection's bytes.
    pub(crate) meter: Arc<Meter>,
    number: u64,
    seats: Arc<Seats>,
}

impl Caller {
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
