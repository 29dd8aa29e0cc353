//! Connections: HTTP/2 over TLS over metered TCP, set up the same way on both sides.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, CommonState, HandshakeKind, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::transport::{Channel, Endpoint, Server};

use crate::limits::{CONNECT_TIMEOUT, PING_TIMEOUT, RECEIPT_TIMEOUT};
use crate::meter::accepted::{Accepted, PeerInfo};
use crate::meter::counter::Meter;
use crate::meter::linger::Lingering;
use crate::meter::paced::{PacedStream, Paces};
use crate::meter::silence::{Attentive, Silence};
use crate::tls::{HTTP2, SERVER_NAME, certificate_pem, peer_expiry};

/// Flow-control window of a client: enough for a fast link.
pub const CLIENT_WINDOW: u32 = 1024 * 1024;
// Least flow-control window of a client: the one with which HTTP/2 connections begin.
const LEAST_WINDOW: u32 = 65_535;
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
    /// Rates that the connection keeps to.
    pub paces: Paces,
    /// How long the server may be silent.
    pub silence: Silence,
    /// What answered last: its address is tried first.
    pub answered: Answered,
}

/// The address of a name that answered last, and the certificates that it showed, DER. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Answered(Arc<Mutex<Option<Answer>>>);

type Answer = (SocketAddr, Vec<Vec<u8>>);

impl Answered {
    fn last(&self) -> Option<Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The certificates of the server, PEM, its own first; empty before the first handshake.
    pub fn certificates(&self) -> String {
        let (_, certificates) = self.last().unzip();
        certificates.iter().flatten().map(|der| certificate_pem(der)).collect()
    }
}

impl Dial {
    /// With a meter of its own and no limits.
    pub fn new(address: String, tls: Arc<ClientConfig>) -> Self {
        Self {
            address,
            tls,
            meter: Arc::default(),
            paces: Paces::default(),
            silence: Silence::default(),
            answered: Answered::default(),
        }
    }
}

/// A connection whose TLS handshake is done: the server has proved its certificate, and sees this client's.
#[derive(Debug)]
pub struct Handshaken {
    io: TlsStream<Lingering<PacedStream<Attentive<TcpStream>>>>,
    address: String,
    paces: Paces,
}

impl Handshaken {
    /// The certificates that the server sent, DER; its own first.
    pub fn server_certificates(&self) -> Vec<Vec<u8>> {
        let certificates = self.io.get_ref().1.peer_certificates().unwrap_or_default();
        certificates.iter().map(|der| der.as_ref().to_vec()).collect()
    }

    /// Begins HTTP/2. As with [`dial`], the channel's calls fail when the connection breaks.
    ///
    /// # Errors
    /// Why the connection failed; the `source` chain has the cause.
    pub async fn channel(self) -> Result<Channel, tonic::transport::Error> {
        let address = self.address.clone();
        let paces = self.paces.clone();
        channel(&address, &paces, async move { Ok(self) }).await
    }
}

/// The client's side of the TLS handshake over a connection to the server.
///
/// # Errors
/// As [`dial`], as far as the handshake: a rustls error is inside.
pub async fn handshake(dial: Dial, io: TcpStream) -> io::Result<Handshaken> {
    let Dial {
        address,
        tls,
        meter,
        paces,
        silence,
        answered: _,
    } = dial;
    prepare(&io)?;
    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
    let clock = Arc::clone(&tls.time_provider);
    let io = Lingering::new(PacedStream::new(Attentive::new(io, silence), paces.clone()), meter);
    let io = within(CONNECT_TIMEOUT, TlsConnector::from(tls).connect(name, io)).await?;
    let session = io.get_ref().1;
    if session.alpn_protocol() != Some(HTTP2) {
        return Err(io::Error::other("the server does not speak HTTP/2"));
    }
    not_expired(session, clock.as_ref())?;
    Ok(Handshaken { io, address, paces })
}

/// Opens one connection to the server. When the connection breaks, the channel's calls fail and the caller dials again: the
/// result of joining holds for one connection only, because another server or another run may listen at the address by then.
///
/// # Errors
/// Why the connection failed; the `source` chain has the cause.
pub async fn dial(dial: Dial) -> Result<Channel, tonic::transport::Error> {
    let address = dial.address.clone();
    let paces = dial.paces.clone();
    let connect = async move {
        let looked_up = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host(&dial.address)).await;
        let mut addresses: Vec<_> = looked_up
            .map_err(|_| io::Error::other("lookup: the name server does not answer"))??
            .collect();
        // Stable: the others keep their order.
        let answered = dial.answered.last().map(|(address, _)| address);
        addresses.sort_by_key(|address| Some(*address) != answered);
        first_address(addresses, |address| {
            let dial = dial.clone();
            async move {
                let last = dial.answered.clone();
                let done = handshake(dial, TcpStream::connect(address).await?).await?;
                let answer = Some((address, done.server_certificates()));
                *last.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
                Ok(done)
            }
        })
        .await
    };
    channel(&address, &paces, connect).await
}

// Time limit of a name server's answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
// How long an address may be silent before the next one is tried as well (RFC 8305, section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// The first result of `connect` over the addresses of a name: each begins when the one before has failed, or was silent for
/// a quarter of a second. The others are dropped then.
///
/// # Errors
/// That of the last one to fail.
pub async fn first_address<T: Send + 'static, F: Future<Output = io::Result<T>> + Send + 'static>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let mut tries = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    let mut rest = addresses.into_iter().peekable();
    loop {
        match rest.next() {
            Some(address) => drop(tries.spawn(connect(address))),
            None if tries.is_empty() => return Err(last),
            None => {}
        }
        tokio::select! {
            Some(done) = tries.join_next() => match done.map_err(io::Error::other).flatten() {
                Ok(done) => return Ok(done),
                Err(error) => last = error,
            },
            () = tokio::time::sleep(NEXT_ADDRESS), if rest.peek().is_some() => {}
        }
    }
}

/// Sets what both sides want of TCP: no waiting for more to send, and an end where nobody confirms what was sent.
fn prepare(io: &TcpStream) -> io::Result<()> {
    io.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(io, RECEIPT_TIMEOUT.as_millis() as u32)?;
    Ok(())
}

/// A channel over the connection that `connect` makes, and over no other.
async fn channel(
    address: &str,
    paces: &Paces,
    connect: impl Future<Output = io::Result<Handshaken>> + Send + 'static,
) -> Result<Channel, tonic::transport::Error> {
    // The connector below speaks TLS. tonic gets a plain address, and requests name the true scheme.
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let origin = Endpoint::from_shared(format!("https://{address}"))?.uri().clone();
    let window = window(paces);
    let endpoint = endpoint
        .origin(origin)
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window);
    let once = Arc::new(Mutex::new(Some(Box::pin(connect))));
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let connect = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            let connect =
                connect.ok_or_else(|| io::Error::new(io::ErrorKind::ConnectionAborted, "the connection broke"))?;
            Ok::<_, io::Error>(TokioIo::new(connect.await?.io))
        }
    });
    endpoint.connect_with_connector(connect).await
}

/// The flow-control window of a client: what arrives at its rate in half a second, so that an HTTP/2 ping waits behind no more.
fn window(paces: &Paces) -> u32 {
    let half = paces.down.as_ref().map(|pace| pace.rate() / 2);
    half.map_or(CLIENT_WINDOW, |bytes| {
        u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .clamp(LEAST_WINDOW, CLIENT_WINDOW)
    })
}

/// A gRPC server with the limits of this protocol and at most `streams` calls of a connection at once, which pings a client that
/// was silent for `ping_every`. The caller adds services and passes connections made by [`accept`].
pub fn server_builder(streams: u32, ping_every: Duration) -> Server {
    Server::builder()
        .initial_stream_window_size(SERVER_WINDOW)
        .initial_connection_window_size(SERVER_WINDOW)
        .max_concurrent_streams(streams)
        .http2_keepalive_interval(Some(ping_every))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
}

/// The server's side of a connection: performs the handshake and takes the client's certificate. `meter` counts from the first
/// byte on.
///
/// # Errors
/// If the client does not speak TLS 1.3, presents no certificate of the authority, or resumes a session with one that has
/// expired since; of kind `TimedOut` if it takes longer than `timeout`.
pub async fn accept(
    io: TcpStream,
    address: SocketAddr,
    meter: Arc<Meter>,
    tls: Arc<ServerConfig>,
    timeout: Duration,
) -> io::Result<Accepted> {
    prepare(&io)?;
    let io = Lingering::new(io, Arc::clone(&meter));
    let clock = Arc::clone(&tls.time_provider);
    let io = within(timeout, TlsAcceptor::from(tls).accept(io)).await?;
    not_expired(io.get_ref().1, clock.as_ref())?;
    // The verifier requires a certificate, so there is one.
    let chain = io.get_ref().1.peer_certificates();
    let chain = chain.ok_or_else(|| io::Error::other("the client showed no certificate"))?;
    let info = PeerInfo {
        address,
        meter,
        chain: chain.iter().map(|der| der.to_vec()).collect(),
    };
    Ok(Accepted::new(io, info))
}

/// The server's side of a connection whose client has no certificate yet: performs the handshake. `meter` counts from the
/// first byte on.
///
/// # Errors
/// If the client does not speak TLS 1.3; of kind `TimedOut` if it takes longer than `timeout`.
pub async fn accept_uncertified(
    io: TcpStream,
    address: SocketAddr,
    meter: Arc<Meter>,
    tls: Arc<ServerConfig>,
    timeout: Duration,
) -> io::Result<Accepted<SocketAddr>> {
    prepare(&io)?;
    let io = within(timeout, TlsAcceptor::from(tls).accept(Lingering::new(io, meter))).await?;
    Ok(Accepted::new(io, address))
}

/// Checks the expiry of the peer's certificate where the handshake did not, because it resumed a session.
fn not_expired(session: &CommonState, clock: &dyn TimeProvider) -> io::Result<()> {
    if session.handshake_kind() != Some(HandshakeKind::Resumed) {
        return Ok(());
    }
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let ends = certificate.map(|certificate| peer_expiry(certificate)).transpose();
    let ends = ends.map_err(io::Error::other)?.map(OffsetDateTime::unix_timestamp);
    let now = clock.current_time().and_then(|now| i64::try_from(now.as_secs()).ok());
    match (now, ends) {
        (Some(now), Some(ends)) if now <= ends => Ok(()),
        _ => Err(io::Error::other(rustls::Error::from(CertificateError::Expired))),
    }
}

/// A handshake with a time limit.
async fn within<T>(timeout: Duration, handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(timeout, handshake).await;
    done.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake timed out")))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::rustls::pki_types::UnixTime;

    use super::*;
    use crate::{Authority, client_tls, server_tls};

    /// A clock that a test sets, in seconds.
    #[derive(Debug)]
    struct Clock(AtomicU64);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            let now = std::time::Duration::from_secs(self.0.load(Ordering::Relaxed));
            Some(UnixTime::since_unix_epoch(now))
        }
    }

    /// A server whose clock the test sets, and a client of it.
    struct Pair {
        clock: Arc<Clock>,
        server: Arc<ServerConfig>,
        client: Arc<ClientConfig>,
    }

    const BEGIN: u64 = 1_800_000_000;
    const DAY: u64 = 24 * 3600;

    fn pair() -> Pair {
        let now = OffsetDateTime::from_unix_timestamp(BEGIN as i64).unwrap();
        let (authority, root) = Authority::create("fed", now, Duration::days(100)).unwrap();
        let own = authority.issue_server(now, Duration::days(100)).unwrap();
        let client = authority.issue_client(&"anna".parse().unwrap(), now, Duration::days(2));
        let clock = Arc::new(Clock(AtomicU64::new(BEGIN)));
        let mut server = ServerConfig::clone(&server_tls(&root.certificate, &own).unwrap());
        server.time_provider = Arc::clone(&clock) as Arc<dyn TimeProvider>;
        let mut client = ClientConfig::clone(&client_tls(&root.certificate, &client.unwrap()).unwrap());
        client.time_provider = Arc::clone(&clock) as Arc<dyn TimeProvider>;
        Pair {
            clock,
            server: Arc::new(server),
            client: Arc::new(client),
        }
    }

    impl Pair {
        /// Connects and exchanges a byte. Returns how the session began, the certificate that the server saw, and the bytes
        /// of both directions.
        async fn connect(&self) -> io::Result<(Option<HandshakeKind>, Arc<[u8]>, u64)> {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (address, meter) = (listener.local_addr().unwrap(), Arc::new(Meter::default()));
            let connect = async {
                let name = ServerName::try_from(SERVER_NAME).unwrap();
                let io = TcpStream::connect(address).await?;
                let mut io = TlsConnector::from(Arc::clone(&self.client)).connect(name, io).await?;
                io.write_u8(7).await?;
                io.read_u8().await?;
                Ok::<_, io::Error>(io.get_ref().1.handshake_kind())
            };
            let serve = async {
                let (io, from) = listener.accept().await?;
                let mut io = accept(io, from, Arc::clone(&meter), Arc::clone(&self.server), CONNECT_TIMEOUT).await?;
                io.read_u8().await?;
                io.write_u8(8).await?;
                io.flush().await?;
                Ok::<_, io::Error>(io)
            };
            let (kind, served) = tokio::join!(connect, serve);
            let certificate = Arc::from(served?.info().chain[0].as_slice());
            Ok((kind?, certificate, meter.read() + meter.written()))
        }
    }

    #[tokio::test]
    async fn a_client_that_comes_back_resumes_its_session_with_its_certificate_and_half_of_the_bytes() {
        let pair = pair();
        let (kind, certificate, first) = pair.connect().await.unwrap();
        assert_eq!(kind, Some(HandshakeKind::Full));
        for _ in 0..3 {
            let (kind, again, bytes) = pair.connect().await.unwrap();
            assert_eq!(kind, Some(HandshakeKind::Resumed));
            assert_eq!(again, certificate);
            eprintln!("handshake: {first} bytes in full, {bytes} resumed");
            assert!(2 * bytes < first, "{bytes} of {first}");
        }
    }

    #[tokio::test]
    async fn a_resumed_session_does_not_outlive_the_certificate() {
        let pair = pair();
        pair.connect().await.unwrap();
        pair.clock.0.store(BEGIN + 2 * DAY, Ordering::Relaxed);
        // A session lives for a day: the second begins anew, and the third resumes it.
        pair.connect().await.unwrap();
        assert_eq!(pair.connect().await.unwrap().0, Some(HandshakeKind::Resumed));
        pair.clock.0.store(BEGIN + 2 * DAY + 1, Ordering::Relaxed);
        let error = pair.connect().await.unwrap_err();
        assert!(error.to_string().contains("xpired"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_costs_a_quarter_of_a_second_and_a_failing_one_nothing() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        // Ports: 1 is silent, 2 refuses, 3 answers after a second, others answer.
        let connect = |address: SocketAddr| async move {
            match address.port() {
                1 => std::future::pending().await,
                2 => Err(io::ErrorKind::ConnectionRefused.into()),
                3 => {
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    Ok(3)
                }
                port => Ok(port),
            }
        };
        for (ports, found, millis) in [
            (&[4][..], 4, 0),
            (&[1, 4], 4, 250),
            (&[2, 4], 4, 0),
            (&[1, 2, 1, 4], 4, 500),
            (&[3, 1], 3, 1000),
            (&[3, 2, 4], 4, 250),
        ] {
            let begun = tokio::time::Instant::now();
            let addresses = ports.iter().map(|port| address(*port)).collect();
            assert_eq!(first_address(addresses, connect).await.unwrap(), found, "{ports:?}");
            assert_eq!(begun.elapsed().as_millis(), millis, "{ports:?}");
        }
        for (ports, why) in [
            (vec![2, 2], io::ErrorKind::ConnectionRefused),
            (vec![], io::ErrorKind::AddrNotAvailable),
        ] {
            let addresses = ports.into_iter().map(address).collect();
            assert_eq!(first_address(addresses, connect).await.unwrap_err().kind(), why);
        }
    }
}
