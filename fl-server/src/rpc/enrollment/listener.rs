//! Opens the enrollment port while a token is open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::Meter;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::calls::service;
use super::lease::{Lease, lease};
use crate::accounting::edge::{ClosedFor, Edge, PortCounters};
use crate::config::live::LiveSettings;
use crate::config::server::Tuning;
use crate::rate_limited::LogLimit;
use crate::registry::actor::RegistryHandle;
use crate::rpc::door::{Arrivals, Entry, Lobby, Stranger, failed_handshake};

#[derive(Debug)]
pub(crate) struct EnrollmentPort {
    address: SocketAddr,
    /// That of new connections.
    tls: watch::Receiver<Arc<ServerConfig>>,
    registry: RegistryHandle,
    /// Counts the bytes of the port, which are not those of a run.
    meter: Arc<Meter>,
    edge: Arc<Edge>,
    settings: watch::Receiver<Arc<LiveSettings>>,
    shown: watch::Sender<Listening>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listening {
    Closed,
    At(SocketAddr),
    /// A token is open, and the port cannot be: a sentence why.
    Failed(String),
}

/// How often to check whether the last token has expired, and to retry to listen.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a failed accept: the process has no file descriptor left.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Connections that wait for the gRPC server, at most: it takes them at once.
const QUEUE: usize = 4;

impl EnrollmentPort {
    pub(crate) fn new(
        address: SocketAddr,
        tls: watch::Receiver<Arc<ServerConfig>>,
        registry: RegistryHandle,
        edge: Arc<Edge>,
        settings: watch::Receiver<Arc<LiveSettings>>,
    ) -> (Self, watch::Receiver<Listening>) {
        let (shown, listening) = watch::channel(Listening::Closed);
        let port = Self {
            address,
            tls,
            registry,
            meter: Arc::default(),
            edge,
            settings,
            shown,
        };
        (port, listening)
    }

    /// Listens while a token is open, until the future is dropped.
    pub(crate) async fn keep(self) {
        let mut open = self.registry.open();
        let mut cannot = LogLimit::default();
        loop {
            if open.wait_for(|open| *open).await.is_err() {
                return;
            }
            match TcpListener::bind(self.address).await {
                Ok(listener) => {
                    let address = listener.local_addr().unwrap_or(self.address);
                    tracing::info!(%address, "devices may enroll: a token is open");
                    self.shown.send_replace(Listening::At(address));
                    self.edge.enrollment_is(true);
                    tokio::select! {
                        () = self.serve(listener) => {}
                        () = self.closed() => {}
                    }
                    tracing::info!(%address, "no token is open: the enrollment port is closed");
                    self.shown.send_replace(Listening::Closed);
                    self.edge.enrollment_is(false);
                }
                Err(error) => {
                    let address = self.address;
                    let why = format!("cannot listen on {address} (`enroll` in server.toml): {error}");
                    if cannot.due(Instant::now()).is_some() {
                        tracing::error!("{why}");
                    }
                    self.shown.send_replace(Listening::Failed(why));
                    tokio::time::sleep(POLL_INTERVAL).await;
                    self.registry.refresh().await;
                }
            }
        }
    }

    async fn closed(&self) {
        let mut open = self.registry.open();
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = async { let _ = open.wait_for(|open| !*open).await; } => return,
                _ = poll.tick() => self.registry.refresh().await,
            }
        }
    }

    /// Takes connections until the future is dropped.
    async fn serve(&self, listener: TcpListener) {
        let (leases, incoming) = mpsc::channel(QUEUE);
        let server = Server::builder()
            .max_concurrent_streams(2)
            .initial_stream_window_size(16 * 1024)
            .initial_connection_window_size(32 * 1024)
            .max_frame_size(16 * 1024)
            .add_service(service(
                self.registry.clone(),
                Arc::clone(&self.edge),
                self.settings.clone(),
            ))
            .serve_with_incoming(ReceiverStream::new(incoming));
        tokio::select! {
            ended = server => {
                if let Err(error) = ended {
                    tracing::warn!(%error, "the enrollment port failed");
                }
            }
            () = self.accept(Arrivals::new(listener), leases) => {}
        }
    }

    async fn accept(&self, mut arrivals: Arrivals, leases: mpsc::Sender<io::Result<Lease>>) {
        let mut lobby = Lobby::new(0, 0);
        let mut visits = JoinSet::new();
        loop {
            let tuning = self.settings.borrow().tuning;
            let accepted = tokio::select! {
                accepted = arrivals.next(tuning.proxy_protocol, tuning.enroll_connections) => accepted,
                Some(ended) = visits.join_next() => {
                    // An evicted connection has left the lobby already.
                    if let Ok(number) = ended {
                        lobby.leave(number);
                    }
                    continue;
                }
            };
            let Ok((io, address)) = accepted else {
                lobby.free_descriptor(&self.edge.enroll);
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            };
            self.edge.enroll.accepted();
            lobby.resize(tuning.enroll_connections, tuning.enroll_connections_per_address);
            if let Entry::Full(_) = lobby.admit(address.ip(), &self.edge.enroll) {
                // Closed at once: the device tries again.
                continue;
            }
            let number = lobby.next_number();
            let meter = Arc::new(Meter::within(Arc::clone(&self.meter)));
            let visit = Visit {
                tls: Arc::clone(&self.tls.borrow()),
                counters: Arc::clone(&self.edge.enroll),
                meter: Arc::clone(&meter),
                leases: leases.clone(),
                tuning,
            };
            let task = visits.spawn(async move {
                visit.take_place(io, address).await;
                number
            });
            lobby.waits(Instant::now(), address.ip(), Stranger { meter, task });
        }
    }
}

/// What a connection takes from accept to end.
struct Visit {
    tls: Arc<ServerConfig>,
    counters: Arc<PortCounters>,
    meter: Arc<Meter>,
    leases: mpsc::Sender<io::Result<Lease>>,
    tuning: Tuning,
}

impl Visit {
    async fn take_place(self, io: TcpStream, address: SocketAddr) {
        let ends = Instant::now() + self.tuning.enroll_timeout;
        let handshaking = self.counters.handshaking();
        let timeout = self.tuning.handshake_timeout.min(self.tuning.enroll_timeout);
        let io = match fl_proto::accept_uncertified(io, address, self.meter, self.tls, timeout).await {
            Ok(io) => io,
            Err(error) => {
                self.counters.closed(failed_handshake(&error));
                tracing::debug!(%address, %error, "no TLS handshake on the enrollment port");
                return;
            }
        };
        let (lease, mut stay) = lease(io, handshaking.done());
        let stays = async {
            let _ = self.leases.send(Ok(lease)).await;
            stay.left().await;
        };
        if tokio::time::timeout_at(ends, stays).await.is_err() {
            // Counted before `stay` is dropped, which closes the connection.
            self.counters.closed(ClosedFor::Lifetime);
        }
    }
}
