//! The way to the server: its name, its port, and whose certificate it has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fl_cli::findings::Line;
use fl_proto::{
    CONNECT_TIMEOUT, Dial, Fingerprint, Handshaken, certificate_pem, certificates_of, common_name, first_address,
    issuer_of,
};
use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::config::ClientConfig;
use crate::error::Error;
use crate::error_mapping::{Sources, transport, unreachable, wrong_time};
use crate::rpc;

/// The addresses of the server's name.
pub(super) async fn resolve(server: &str) -> Result<(Vec<SocketAddr>, Line), Line> {
    let failed = |why: String| {
        Line::wrong(
            "name",
            format!("{server} cannot be resolved: {why}"),
            "is `server` spelled right, and is this device on the network?",
        )
    };
    let found = timeout(CONNECT_TIMEOUT, tokio::net::lookup_host(server)).await;
    let found = found.map_err(|_| failed("the name server does not answer".to_owned()))?;
    let addresses: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
    if addresses.is_empty() {
        return Err(failed("it has no address".to_owned()));
    }
    let shown: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
    let line = Line::good("name", format!("{server} is {}", shown.join(", ")));
    Ok((addresses, line))
}

/// A port that answers.
#[derive(Debug)]
pub(super) struct Port {
    io: TcpStream,
    /// How long TCP's handshake took.
    round_trip: Duration,
}

/// Connects to the first address that answers.
pub(super) async fn port(server: &str, addresses: Vec<SocketAddr>) -> Result<(Port, Line), Line> {
    let connect = |address: SocketAddr| async move {
        let begun = Instant::now();
        let io = TcpStream::connect(address).await?;
        Ok((address, begun.elapsed(), io))
    };
    let connected = timeout(CONNECT_TIMEOUT, first_address(addresses, connect)).await;
    let error = match connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
        Ok((address, round_trip, io)) => {
            let millis = round_trip.as_secs_f64() * 1000.0;
            let line = Line::good(
                "port",
                format!("{address} accepts connections; a round trip takes {millis:.1} ms"),
            );
            return Ok((Port { io, round_trip }, line));
        }
        Err(error) => error,
    };
    let why = unreachable(&Sources::along(&error), server, || {
        Error::Unreachable(format!("{server} hung up"))
    });
    Err(Line::failed("port", why.to_string()))
}

/// A connection to a server that has proved to be of the authority.
#[derive(Debug)]
pub(super) struct Secured {
    pub(super) connection: Handshaken,
    pub(super) round_trip: Duration,
    /// What is wrong with the time: the server's certificate is not valid by this device's clock.
    pub(super) wrong_time: Option<String>,
}

/// The TLS handshake, with this device's clock at `now`. If only the time is wrong, it is repeated at a time at which the server's
/// certificate is valid, because the server can tell which of the two is wrong. Nothing is sent over such a connection but a probe.
pub(super) async fn handshake(
    config: &Arc<ClientConfig>,
    port: Port,
    now: OffsetDateTime,
) -> Result<(Secured, Line), Line> {
    let Port { io, round_trip } = port;
    let address = io.peer_addr();
    let (connection, wrong) = match shake(config, io, unix(now)).await {
        Ok(connection) => (connection, None),
        Err(error) => {
            let failed = || Line::failed("tls", transport(&error, config).to_string());
            let found = Sources::along(&error).tls;
            let Some((valid, why)) = found.and_then(|tls| valid_time(&tls, &config.server)) else {
                return Err(failed());
            };
            let again = match address {
                Ok(address) => TcpStream::connect(address).await,
                Err(error) => Err(error),
            };
            let io = again.map_err(|_| failed())?;
            (shake(config, io, valid).await.map_err(|_| failed())?, Some(why))
        }
    };
    let line = whose(config, &connection);
    let secured = Secured {
        connection,
        round_trip,
        wrong_time: wrong,
    };
    Ok((secured, line))
}

async fn shake(config: &Arc<ClientConfig>, io: TcpStream, clock: UnixTime) -> std::io::Result<Handshaken> {
    let tls = rpc::tls(config).map_err(std::io::Error::other)?;
    let mut tls = rustls::ClientConfig::clone(&tls);
    tls.time_provider = Arc::new(Stopped(clock));
    let dial = Dial {
        meter: Arc::clone(&config.meter),
        paces: config.limits.paces.clone(),
        ..Dial::new(config.server.clone(), Arc::new(tls))
    };
    fl_proto::handshake(dial, io).await
}

/// A time at which the server's certificate is valid, and what is wrong, if the time is all that is.
fn valid_time(error: &rustls::Error, server: &str) -> Option<(UnixTime, String)> {
    let rustls::Error::InvalidCertificate(why) = error else {
        return None;
    };
    let valid = match why {
        CertificateError::ExpiredContext { not_after, .. } => *not_after,
        CertificateError::NotValidYetContext { not_before, .. } => *not_before,
        _ => return None,
    };
    Some((valid, wrong_time(why, server)))
}

/// Which of this client's authorities has issued the server's certificate.
fn whose(config: &ClientConfig, connection: &Handshaken) -> Line {
    let server = connection.server_certificates();
    let server: String = server.iter().map(|der| certificate_pem(der)).collect();
    let authorities = certificates_of(&config.authority).unwrap_or_default();
    let whose = issuer_of(&server, &authorities).ok().map(|der| {
        let name = common_name(der).unwrap_or_else(|_| "without a name".to_owned());
        format!("`{name}` ({})", Fingerprint::of(der))
    });
    let whose = whose.unwrap_or_else(|| "of this client's file".to_owned());
    Line::good("tls", format!("TLS 1.3; the server belongs to the authority {whose}"))
}

fn unix(time: OffsetDateTime) -> UnixTime {
    let seconds = u64::try_from(time.unix_timestamp()).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// A clock that always tells the same time.
#[derive(Debug)]
struct Stopped(UnixTime);

impl TimeProvider for Stopped {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}
