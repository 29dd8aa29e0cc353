//! Connections: HTTP/2 over TLS over metered TCP, set up the same way on both sides.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::transport::{Channel, Endpoint, Server};

use crate::limits::{CONNECT_TIMEOUT, KEEP_ALIVE_EVERY, KEEP_ALIVE_TIMEOUT};
use crate::meter::accepted::{Accepted, PeerInfo};
use crate::meter::counter::Meter;
use crate::meter::linger::Lingering;
use crate::tls::{HTTP2, SERVER_NAME};

/// Flow-control window of a client: enough for a fast link.
pub const CLIENT_WINDOW: u32 = 1024 * 1024;
/// Flow-control window of the server for each client. A hundred clients whose uploads wait for their turn hold this much of its
/// memory each; one client on a link of 50 ms can send 20 Mbit/s.
pub const SERVER_WINDOW: u32 = 128 * 1024;
/// Concurrent calls of one client: watch, fetch, submit, and slack.
pub const MAX_STREAMS: u32 = 16;

/// Where and how a client connects.
#[derive(Debug, Clone)]
pub struct Dial {
    /// `host:port` of the server.
    pub address: String,
    /// The client's certificate and the federation's authority.
    pub tls: Arc<ClientConfig>,
    /// Counts the connection's bytes.
    pub meter: Arc<Meter>,
}

/// Opens one connection to the server. When the connection breaks, the channel's calls fail and the caller dials again: the
/// result of joining holds for one connection only, because another server or another run may listen at the address by then.
///
/// # Errors
/// Why the connection failed; the `source` chain has the cause.
pub async fn dial(dial: Dial) -> Result<Channel, tonic::transport::Error> {
    // The connector below speaks TLS. tonic gets a plain address, and requests name the true scheme.
    let endpoint = Endpoint::from_shared(format!("http://{}", dial.address))?;
    let origin = Endpoint::from_shared(format!("https://{}", dial.address))?
        .uri()
        .clone();
    let endpoint = endpoint
        .origin(origin)
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(CLIENT_WINDOW)
        .initial_connection_window_size(CLIENT_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let made = Arc::new(AtomicBool::new(false));
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let (dial, made) = (dial.clone(), Arc::clone(&made));
        async move {
            if made.swap(true, Ordering::AcqRel) {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection broke"));
            }
            let io = TcpStream::connect(dial.address).await?;
            io.set_nodelay(true)?;
            let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
            let handshake = TlsConnector::from(dial.tls).connect(name, Lingering::new(io, dial.meter));
            let io = within(handshake).await?;
            if io.get_ref().1.alpn_protocol() != Some(HTTP2) {
                return Err(io::Error::other("the server does not speak HTTP/2"));
            }
            Ok(TokioIo::new(io))
        }
    });
    endpoint.connect_with_connector(connect).await
}

/// A gRPC server with the limits of this protocol. The caller adds services and passes connections made by [`accept`].
pub fn server_builder() -> Server {
    Server::builder()
        .initial_stream_window_size(SERVER_WINDOW)
        .initial_connection_window_size(SERVER_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(KEEP_ALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
}

/// The server's side of a connection: performs the handshake and takes the client's certificate. `meter` counts from the first
/// byte on.
///
/// # Errors
/// If the client does not speak TLS 1.3, presents no certificate of the authority, or takes longer than [`CONNECT_TIMEOUT`].
pub async fn accept(
    io: TcpStream,
    address: SocketAddr,
    meter: Arc<Meter>,
    tls: Arc<ServerConfig>,
) -> io::Result<Accepted> {
    io.set_nodelay(true)?;
    let io = Lingering::new(io, Arc::clone(&meter));
    let io = within(TlsAcceptor::from(tls).accept(io)).await?;
    let certificate = io.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    // The verifier requires a certificate, so there is one.
    let certificate = certificate.ok_or_else(|| io::Error::other("the client showed no certificate"))?;
    let info = PeerInfo {
        address,
        meter,
        certificate: certificate.as_ref().into(),
    };
    Ok(Accepted::new(io, info))
}

/// A handshake with a time limit.
async fn within<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(CONNECT_TIMEOUT, handshake).await;
    done.unwrap_or_else(|_| Err(io::Error::other("the TLS handshake timed out")))
}
