//! Opens the enrollment port while a token is open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::Meter;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::calls::service;
use super::lease::{Lease, Places};
use crate::rate_limited::RateLimited;
use crate::registry::actor::RegistryHandle;

/// The enrollment port of a server.
#[derive(Debug)]
pub(crate) struct EnrollmentPort {
    address: SocketAddr,
    /// That of new connections.
    tls: watch::Receiver<Arc<ServerConfig>>,
    registry: RegistryHandle,
    /// Counts the bytes of the port, which are not those of a run.
    meter: Arc<Meter>,
    shown: watch::Sender<Listening>,
}

/// Whether the port is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listening {
    /// No token is open.
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
        meter: Arc<Meter>,
    ) -> (Self, watch::Receiver<Listening>) {
        let (shown, listening) = watch::channel(Listening::Closed);
        let port = Self {
            address,
            tls,
            registry,
            meter,
            shown,
        };
        (port, listening)
    }

    /// Listens while a token is open, until the future is dropped.
    pub(crate) async fn keep(self) {
        let mut open = self.registry.open();
        let mut cannot = RateLimited::default();
        loop {
            if open.wait_for(|open| *open).await.is_err() {
                return;
            }
            match TcpListener::bind(self.address).await {
                Ok(listener) => {
                    let address = listener.local_addr().unwrap_or(self.address);
                    tracing::info!(%address, "devices may enroll: a token is open");
                    self.shown.send_replace(Listening::At(address));
                    tokio::select! {
                        () = self.serve(listener) => {}
                        () = self.closed() => {}
                    }
                    tracing::info!(%address, "no token is open: the enrollment port is closed");
                    self.shown.send_replace(Listening::Closed);
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

    /// Completes when no token is open any more.
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
            .add_service(service(self.registry.clone()))
            .serve_with_incoming(ReceiverStream::new(incoming));
        tokio::select! {
            ended = server => {
                if let Err(error) = ended {
                    tracing::warn!(%error, "the enrollment port failed");
                }
            }
            () = self.accept(listener, leases) => {}
        }
    }

    async fn accept(&self, listener: TcpListener, leases: mpsc::Sender<std::io::Result<Lease>>) {
        let places = Arc::new(Places::default());
        let mut handshakes = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = handshakes.join_next() => continue,
            };
            let Ok((io, address)) = accepted else {
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            };
            // Closed at once: the device tries again.
            let Some(place) = places.take(address.ip()) else {
                continue;
            };
            let (tls, leases) = (Arc::clone(&self.tls.borrow()), leases.clone());
            let (meter, began) = (Arc::new(Meter::within(Arc::clone(&self.meter))), Instant::now());
            handshakes.spawn(async move {
                match fl_proto::accept_uncertified(io, address, meter, tls).await {
                    Ok(io) => {
                        let _ = leases.send(Ok(Lease::new(io, place, began))).await;
                    }
                    Err(error) => tracing::debug!(%address, %error, "no TLS handshake on the enrollment port"),
                }
            });
        }
    }
}
