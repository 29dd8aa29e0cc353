//! One hostile connection of each kind.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fl_proto::wire::enrollment_client::EnrollmentClient;
use fl_proto::wire::federation_client::FederationClient;
use fl_proto::{Dial, Fingerprint, Issued, NewKey, PROTOCOL_MAJOR, Secret, client_tls, pinned_client_tls, wire};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::Channel;

use crate::dice::Dice;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Garbage,
    /// Nothing.
    HalfOpen,
    /// The beginning of a handshake, and the rest a byte at a time.
    Slow,
    /// A handshake message of 16 MiB.
    OversizedHandshake,
    /// A certificate of another authority.
    ForeignCertificate,
    /// A certificate of this authority that has expired.
    ExpiredCertificate,
    /// A certified client whose message is too large.
    OversizedMessage,
    /// Random bytes at the enrollment port.
    EnrollGarbage,
    /// Nothing at the enrollment port.
    EnrollHalfOpen,
    /// A request for a certificate of 1 MiB.
    EnrollOversized,
    /// A request for a certificate with a guessed secret.
    Guess,
}

impl Kind {
    /// In the order of their declaration.
    pub(super) const ALL: [Self; 11] = [
        Self::Garbage,
        Self::HalfOpen,
        Self::Slow,
        Self::OversizedHandshake,
        Self::ForeignCertificate,
        Self::ExpiredCertificate,
        Self::OversizedMessage,
        Self::EnrollGarbage,
        Self::EnrollHalfOpen,
        Self::EnrollOversized,
        Self::Guess,
    ];

    /// For a table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::HalfOpen => "half-open",
            Self::Slow => "slow handshake",
            Self::OversizedHandshake => "oversized handshake",
            Self::ForeignCertificate => "foreign certificate",
            Self::ExpiredCertificate => "expired certificate",
            Self::OversizedMessage => "oversized message",
            Self::EnrollGarbage => "enroll: garbage",
            Self::EnrollHalfOpen => "enroll: half-open",
            Self::EnrollOversized => "enroll: oversized",
            Self::Guess => "enroll: guess",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum End {
    /// No connection was made.
    Unreached,
    /// The server closed it, or refused its handshake.
    Closed,
    /// The server answered the call with an error.
    Refused,
    /// The server had not closed it when the attacker did.
    Open,
    /// The server did what it was asked for.
    Served,
}

impl End {
    /// In the order of their declaration.
    pub(super) const ALL: [Self; 5] = [Self::Unreached, Self::Closed, Self::Refused, Self::Open, Self::Served];
}

/// What attackers know and hold.
#[derive(Debug)]
pub(super) struct Attackers {
    pub(super) main: SocketAddr,
    pub(super) enroll: String,
    /// The federation's authority, PEM.
    pub(super) root: String,
    /// Its fingerprint, as in an enrollment line.
    pub(super) authority: Fingerprint,
    pub(super) foreign: Issued,
    pub(super) expired: Issued,
    /// Certified clients that take no part in the run.
    pub(super) own: Vec<Issued>,
    /// How long an attacker waits for the server to close its connection.
    pub(super) patience: Duration,
}

/// Pause between two bytes of a slow handshake.
const TRICKLE: Duration = Duration::from_millis(250);
/// Larger than any message of the protocol.
const OVERSIZED: usize = 1 << 20;
/// Addresses of attackers: 127.0.1.2 and the following.
const ADDRESSES: u64 = 200;

impl Attackers {
    /// Connects as `kind` says; the numbers are of `dice`.
    pub(super) async fn attack(&self, kind: Kind, mut dice: Dice) -> End {
        match kind {
            Kind::Garbage | Kind::EnrollGarbage => {
                let bytes: Vec<u8> = (0..1 + dice.below(4_096)).map(|_| dice.next() as u8).collect();
                self.raw(kind, &mut dice, &bytes).await
            }
            Kind::HalfOpen | Kind::EnrollHalfOpen => self.raw(kind, &mut dice, &[]).await,
            Kind::OversizedHandshake => self.raw(kind, &mut dice, &oversized_handshake()).await,
            Kind::Slow => self.slow(&mut dice).await,
            Kind::ForeignCertificate => self.certified(&self.foreign, false).await,
            Kind::ExpiredCertificate => self.certified(&self.expired, false).await,
            Kind::OversizedMessage => {
                let own = dice.below(self.own.len() as u64) as usize;
                match self.own.get(own) {
                    Some(own) => self.certified(own, true).await,
                    None => End::Unreached,
                }
            }
            Kind::EnrollOversized => self.enroll(OVERSIZED).await,
            Kind::Guess => self.enroll(0).await,
        }
    }

    /// Connects from an address that no honest client uses.
    async fn connect(&self, kind: Kind, dice: &mut Dice) -> anyhow::Result<TcpStream> {
        let to = match kind {
            Kind::EnrollGarbage | Kind::EnrollHalfOpen => self.enroll.parse()?,
            _ => self.main,
        };
        let socket = TcpSocket::new_v4()?;
        let last = 2 + dice.below(ADDRESSES) as u8;
        socket.bind((Ipv4Addr::new(127, 0, 1, last), 0).into())?;
        Ok(tokio::time::timeout(self.patience, socket.connect(to)).await??)
    }

    /// Sends `bytes` and waits for the end.
    async fn raw(&self, kind: Kind, dice: &mut Dice, bytes: &[u8]) -> End {
        let Ok(mut io) = self.connect(kind, dice).await else {
            return End::Unreached;
        };
        self.closed(async {
            // The server may close before it has read everything.
            let _ = io.write_all(bytes).await;
            while matches!(io.read(&mut [0; 1024]).await, Ok(1..)) {}
        })
        .await
    }

    async fn closed(&self, exchange: impl Future<Output = ()>) -> End {
        match tokio::time::timeout(self.patience, exchange).await {
            Ok(()) => End::Closed,
            Err(_) => End::Open,
        }
    }

    async fn slow(&self, dice: &mut Dice) -> End {
        let Ok(mut io) = self.connect(Kind::Slow, dice).await else {
            return End::Unreached;
        };
        // A record of 16 KiB with a ClientHello, of which up to 15 KiB come at once: the server has to keep them.
        let mut begin = vec![22, 3, 1, 64, 0, 1, 0, 63, 252, 3, 3];
        begin.resize(begin.len() + dice.below(15 << 10) as usize, 7);
        self.closed(async {
            if io.write_all(&begin).await.is_err() {
                return;
            }
            for byte in std::iter::repeat(7) {
                if io.write_all(&[byte]).await.is_err() {
                    return;
                }
                let mut answer = [0; 64];
                match tokio::time::timeout(TRICKLE, io.read(&mut answer)).await {
                    Ok(Ok(1..)) | Err(_) => {}
                    Ok(Ok(0) | Err(_)) => return,
                }
            }
        })
        .await
    }

    /// Joins with a certificate; with `oversized`, in a message that is too large.
    async fn certified(&self, own: &Issued, oversized: bool) -> End {
        let Ok(tls) = client_tls(&self.root, own) else {
            return End::Unreached;
        };
        let channel = match self.dial(Dial::new(self.main.to_string(), tls)).await {
            Ok(channel) => channel,
            Err(end) => return end,
        };
        let mut calls = FederationClient::new(channel);
        let request = wire::JoinRequest {
            protocol_major: PROTOCOL_MAJOR,
            tasks: vec!["x".repeat(if oversized { OVERSIZED } else { 1 })],
            ..wire::JoinRequest::default()
        };
        self.answered(calls.join(request)).await
    }

    /// Asks for a certificate with a secret that is wrong, in a request with `more` bytes.
    async fn enroll(&self, more: usize) -> End {
        let key = NewKey::generate().and_then(|key| key.request(None));
        let (Ok(tls), Ok(mut request), Ok(secret)) = (pinned_client_tls(self.authority), key, Secret::generate())
        else {
            return End::Unreached;
        };
        request.resize(request.len() + more, 0);
        let channel = match self.dial(Dial::new(self.enroll.clone(), tls)).await {
            Ok(channel) => channel,
            Err(end) => return end,
        };
        let mut calls = EnrollmentClient::new(channel);
        let request = wire::EnrollRequest {
            protocol_major: PROTOCOL_MAJOR,
            secret: secret.as_bytes().to_vec().into(),
            request: request.into(),
            name: String::new(),
        };
        self.answered(calls.enroll(request)).await
    }

    async fn dial(&self, dial: Dial) -> Result<Channel, End> {
        match tokio::time::timeout(self.patience, fl_proto::dial(dial)).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(_)) => Err(End::Closed),
            Err(_) => Err(End::Open),
        }
    }

    async fn answered<T>(&self, call: impl Future<Output = Result<T, tonic::Status>>) -> End {
        use tonic::Code::{Cancelled, Unavailable, Unknown};
        match tokio::time::timeout(self.patience, call).await {
            Ok(Ok(_)) => End::Served,
            // The connection broke before an answer came.
            Ok(Err(status)) if matches!(status.code(), Unavailable | Unknown | Cancelled) => End::Closed,
            Ok(Err(_)) => End::Refused,
            Err(_) => End::Open,
        }
    }
}

/// Records of a handshake message that says that it has 16 MiB, and 256 KiB of it.
fn oversized_handshake() -> Vec<u8> {
    const RECORD: u16 = 1 << 14;
    let mut bytes = Vec::new();
    for record in 0..16 {
        bytes.extend([22, 3, 1]);
        bytes.extend(RECORD.to_be_bytes());
        let begin = bytes.len();
        if record == 0 {
            bytes.extend([1, 255, 255, 255]);
        }
        bytes.resize(begin + usize::from(RECORD), 0);
    }
    bytes
}
