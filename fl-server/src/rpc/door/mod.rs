//! Takes connections from the listener and hands those of certified clients to the calls.
//!
//! A connection is a *stranger* until its TLS handshake has proved a certificate of the federation. Strangers have
//! places of their own, bounded in total and by address, and keep them for at most `handshake_timeout`; so
//! strangers take no place from a client, whatever their number. Clients have *seats*: bounded in total and by
//! certificate, newest wins.

mod arrivals;
mod lobby;
mod room;
mod seated;
mod seats;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Fingerprint, Meter};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;

use crate::accounting::connections::Connections;
use crate::accounting::edge::{ClosedFor, PortCounters};
use crate::config::live::LiveSettings;
use crate::config::server::Tuning;
use crate::identity::Certificates;
use crate::rate_limited::LogLimit;
use crate::telemetry::events::Events;
use crate::telemetry::turned_away::TurnedFor;
pub(crate) use arrivals::Arrivals;
pub(crate) use lobby::{Entry, Lobby, Stranger, network};
pub(crate) use room::Room;
use seated::seat;
pub(crate) use seated::{Caller, ClientConnection};
pub(crate) use seats::{Call, Seats};

pub(crate) type Incoming = ReceiverStream<io::Result<ClientConnection>>;

#[derive(Debug)]
pub(crate) struct Door {
    arrivals: Arrivals,
    /// That of new connections.
    tls: watch::Receiver<Arc<ServerConfig>>,
    /// Those of this moment: one of the authorities signed a client's certificate.
    certificates: watch::Receiver<Arc<Certificates>>,
    /// The authority of the server's own certificate.
    own: Option<Fingerprint>,
    traffic: Arc<Connections>,
    seats: Arc<Seats>,
    lobby: Lobby<Stranger>,
    handshakes: JoinSet<u64>,
    clients: mpsc::Sender<io::Result<ClientConnection>>,
    settings: watch::Receiver<Arc<LiveSettings>>,
    counters: Arc<PortCounters>,
    events: Events,
    cannot_accept: LogLimit,
}

/// The name of all connections that did not finish their handshake: they share one entry, because their number is unbounded.
const STRANGER: &str = "unknown";
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
        (tls, certificates): (watch::Receiver<Arc<ServerConfig>>, watch::Receiver<Arc<Certificates>>),
        traffic: Arc<Connections>,
        mut settings: watch::Receiver<Arc<LiveSettings>>,
        counters: Arc<PortCounters>,
        events: Events,
    ) -> (Self, Arc<Seats>, Incoming) {
        let room = Room::now(&settings.borrow_and_update());
        let own = certificates.borrow().issuer();
        let (clients, incoming) = mpsc::channel(QUEUE);
        let seats = Arc::new(Seats::new(&room, Arc::clone(&counters)));
        let door = Self {
            arrivals: Arrivals::new(listener),
            tls,
            certificates,
            own,
            traffic,
            seats: Arc::clone(&seats),
            lobby: Lobby::new(room.strangers, room.per_address),
            handshakes: JoinSet::new(),
            clients,
            settings,
            counters,
            events,
            cannot_accept: LogLimit::default(),
        };
        (door, seats, ReceiverStream::new(incoming))
    }

    /// Accepts connections until the gRPC server takes no more.
    pub(crate) async fn keep(mut self) {
        let mut look = tokio::time::interval(POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut paused = None;
        loop {
            let Tuning {
                proxy_protocol,
                handshakes,
                ..
            } = self.settings.borrow().tuning;
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
                accepted = self.arrivals.next(proxy_protocol, handshakes), if paused.is_none() => match accepted {
                    Ok((io, address)) => self.enter(io, address),
                    Err(error) => paused = self.cannot_accept(&error),
                },
                () = pause => paused = None,
                Ok(()) = self.settings.changed() => {
                    let room = Room::now(&self.settings.borrow_and_update());
                    self.seats.resize(&room);
                    self.lobby.resize(room.strangers, room.per_address);
                }
                Ok(()) = self.certificates.changed() => {
                    let issuer = self.certificates.borrow_and_update().issuer();
                    if issuer != self.own {
                        tracing::info!("the authority was rotated: all clients connect again, and trust the one before no more");
                        self.seats.end_all();
                    }
                    self.own = issuer;
                }
                now = look.tick() => {
                    let cut = self.seats.cut_idle(now);
                    if cut > 0 {
                        tracing::info!(connections = cut, "closed connections of clients that made no call");
                    }
                }
            }
        }
    }

    /// Begins the handshake of a new connection, if there is a place for it or one that it may take.
    fn enter(&mut self, io: TcpStream, address: SocketAddr) {
        self.counters.accepted();
        match self.lobby.admit(address.ip(), &self.counters) {
            Entry::Full(_) => {
                let why = format!("{address} was closed at once: as many connections as fit are in their handshake");
                self.events.turned_away(STRANGER, TurnedFor::Stranger, &why);
                return;
            }
            Entry::Instead(_) => {
                let why = format!("the oldest connection without a certificate was closed, to make room for {address}");
                self.events.turned_away(STRANGER, TurnedFor::Stranger, &why);
            }
            Entry::Room => {}
        }
        let meter = Arc::new(Meter::within(Arc::clone(self.traffic.total())));
        self.traffic.connected(Arc::clone(&meter));
        let number = self.lobby.next_number();
        let Tuning {
            handshake_timeout: timeout,
            proxy_protocol,
            ..
        } = self.settings.borrow().tuning;
        let tls = Arc::clone(&self.tls.borrow());
        let seats = Arc::clone(&self.seats);
        let clients = self.clients.clone();
        let events = self.events.clone();
        let certificates = self.certificates.clone();
        let counted = Arc::clone(&meter);
        let counters = Arc::clone(&self.counters);
        let handshaking = counters.handshaking();
        let task = self.handshakes.spawn(async move {
            if !proxy_protocol && tokio::time::timeout(timeout, arrivals::is_proxied(&io)).await == Ok(true) {
                counters.closed(ClosedFor::Handshake);
                let why = format!(
                    "{address} is a proxy that sends a header of the PROXY protocol: set `proxy_protocol = true` in server.toml, if \
                     clients reach this port through it alone"
                );
                events.turned_away(STRANGER, TurnedFor::Stranger, &why);
                return number;
            }
            match fl_proto::accept(io, address, counted, tls, timeout).await {
                Ok(accepted) => {
                    let authorities = certificates.borrow().authorities.clone();
                    let seated = seat(accepted, &authorities, &seats, address, &counters, handshaking.done());
                    if let Some(seated) = seated {
                        // The gRPC server may be stopping.
                        let _ = clients.send(Ok(seated)).await;
                    }
                }
                Err(error) if is_about_the_certificate(&error) => {
                    counters.closed(ClosedFor::Certificate);
                    let why = format!("the TLS handshake failed: {error}");
                    events.turned_away(&address.ip().to_string(), TurnedFor::Certificate, &why);
                }
                Err(error) => {
                    counters.closed(failed_handshake(&error));
                    let why = format!("no TLS handshake with {address}: {error}");
                    events.turned_away(STRANGER, TurnedFor::Stranger, &why);
                }
            }
            number
        });
        self.lobby.waits(Instant::now(), address.ip(), Stranger { meter, task });
    }

    /// Handles a failed accept: the listener stays open, and the oldest stranger is evicted if the process has no file
    /// descriptor left. Returns until when to wait.
    fn cannot_accept(&mut self, error: &io::Error) -> Option<Instant> {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            return None;
        }
        self.lobby.free_descriptor(&self.counters);
        if let Some(times) = self.cannot_accept.due(Instant::now()) {
            tracing::warn!(%error, times, "cannot accept connections at the moment; raise the limit of open files (ulimit -n)");
        }
        Some(Instant::now() + RETRY_INTERVAL)
    }
}

pub(crate) fn failed_handshake(error: &io::Error) -> ClosedFor {
    match error.kind() {
        io::ErrorKind::TimedOut => ClosedFor::HandshakeTimeout,
        _ => ClosedFor::Handshake,
    }
}

/// Whether the handshake failed because the client's certificate is missing, or not one of this federation.
fn is_about_the_certificate(error: &io::Error) -> bool {
    use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(InvalidCertificate(_) | NoCertificatesPresented))
}
