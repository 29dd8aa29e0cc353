//! Connections: HTTP/2 over TLS over metered TCP, set up the same way on both sides.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Server, ServerTlsConfig, Uri};

use crate::meter::{Accepted, Lingering};
use crate::{CONNECT_TIMEOUT, KEEP_ALIVE_EVERY, KEEP_ALIVE_TIMEOUT, Meter, PeerInfo};

/// Bytes that a client lets be in flight to it: enough for a fast link.
const CLIENT_WINDOW: u32 = 1024 * 1024;
/// Bytes that the server lets be in flight from each client. A hundred clients whose uploads wait for their turn hold
/// this much of its memory each; one client on a link of 50 ms can send 20 Mbit/s.
const SERVER_WINDOW: u32 = 128 * 1024;
/// Calls that one client may have open at once: watch, fetch, submit, and room.
const MAX_STREAMS: u32 = 16;

/// Where and how a client connects.
#[derive(Debug, Clone)]
pub struct Dial {
    /// `host:port` of the server.
    pub address: String,
    /// The client's certificate and the federation's authority.
    pub tls: ClientTlsConfig,
    /// Counts the connection's bytes.
    pub meter: Arc<Meter>,
}

/// Connects to the server: one connection. When it breaks, the channel's calls fail and the caller dials again, because
/// what was learned by joining holds for the connection only: behind the same address there may be another server by
/// then, or another run.
///
/// # Errors
/// Whatever keeps the connection from being made; its `source` chain says what.
pub async fn dial(dial: Dial) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("https://{}", dial.address))?
        .tls_config(dial.tls)?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(CLIENT_WINDOW)
        .initial_connection_window_size(CLIENT_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let (address, meter, made) = (dial.address, dial.meter, Arc::new(AtomicBool::new(false)));
    let connect = tower::service_fn(move |_: Uri| {
        let (address, meter, made) = (address.clone(), Arc::clone(&meter), Arc::clone(&made));
        async move {
            if made.swap(true, Ordering::AcqRel) {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection broke"));
            }
            let io = TcpStream::connect(address).await?;
            io.set_nodelay(true)?;
            Ok::<_, io::Error>(TokioIo::new(Lingering::new(io, meter)))
        }
    });
    endpoint.connect_with_connector(connect).await
}

/// A gRPC server with the limits of this protocol; services are added by the caller.
///
/// # Errors
/// If the TLS material is unusable.
pub fn server_builder(tls: ServerTlsConfig) -> Result<Server, tonic::transport::Error> {
    Ok(Server::builder()
        .tls_config(tls)?
        .initial_stream_window_size(SERVER_WINDOW)
        .initial_connection_window_size(SERVER_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(KEEP_ALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT)))
}

/// The connections that arrive at a listener, each with a meter of its own that counts into `total`.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    total: Arc<Meter>,
}

impl Incoming {
    /// Accepts from `listener`.
    pub fn new(listener: TcpListener, total: Arc<Meter>) -> Self {
        Self { listener, total }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Accepted>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.listener.poll_accept(cx).map(|accepted| {
            Some(accepted.and_then(|(io, address)| {
                io.set_nodelay(true)?;
                let meter = Arc::new(Meter::within(Arc::clone(&self.total)));
                Ok(Accepted::new(io, PeerInfo { address, meter }))
            }))
        })
    }
}
