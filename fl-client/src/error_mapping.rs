//! Maps errors of the transport and of calls to errors that say what is wrong and what to do.

use std::error::Error as StdError;
use std::io::ErrorKind;

use fl_proto::{MAX_REASON, foreign_text};
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError};
use time::OffsetDateTime;
use tonic::{Code, Status};

use crate::config::ClientConfig;
use crate::error::Error;

/// Why no connection could be made.
pub(crate) fn transport(error: &(dyn StdError + 'static), config: &ClientConfig) -> Error {
    let found = Sources::along(error);
    if let Some(tls) = &found.tls {
        return of_tls(tls, config);
    }
    unreachable(&found, &config.server, || hung_up(config))
}

/// Why no TCP connection to `server` could be made. `hung_up`: what it means that the server ended it.
pub(crate) fn unreachable(found: &Sources, server: &str, hung_up: impl FnOnce() -> Error) -> Error {
    let last = &found.last;
    match found.io {
        Some(ErrorKind::ConnectionRefused) => Error::Unreachable(format!(
            "nothing listens at {server}: is the server running, and is `server` its address and port?"
        )),
        Some(ErrorKind::TimedOut) => Error::Unreachable(format!(
            "{server} does not answer: is a firewall in between, or the address wrong?"
        )),
        Some(ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable) => {
            Error::Unreachable(format!("there is no route to {server}: is this device on the network?"))
        }
        Some(
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof,
        ) => hung_up(),
        _ if last.contains("lookup") || last.contains("resolve") => Error::Unreachable(format!(
            "the name in {server} cannot be resolved ({last}): is it spelt right, and is this device on the network?"
        )),
        _ if last.contains("deadline") || last.contains("timed out") || last.contains("elapsed") => Error::Unreachable(
            format!("{server} does not answer in time: is it overloaded, or another kind of service?"),
        ),
        _ => Error::Unreachable(format!("cannot connect to {server}: {last}")),
    }
}

/// What a failed call means.
fn status(status: &Status, config: &ClientConfig) -> Error {
    // A server's text, or that of a proxy in between.
    let text = foreign_text(status.message(), MAX_REASON);
    let found = status.source().map(Sources::along);
    if let Some(tls) = found.as_ref().and_then(|found| found.tls.as_ref()) {
        return of_tls(tls, config);
    }
    match status.code() {
        Code::Unauthenticated => Error::Refused(format!(
            "the server does not accept this client's certificate: {text}; ask for a new one"
        )),
        Code::PermissionDenied => Error::Refused(format!(
            "the server does not admit this client: {text}; ask the operator of the server"
        )),
        Code::InvalidArgument => Error::Protocol(format!("the server refuses what this client says: {text}")),
        Code::Unimplemented => Error::Protocol(format!(
            "the server at {} does not know this call: it is older than this client",
            config.server
        )),
        Code::OutOfRange => Error::Protocol(format!("a message is larger than the protocol allows: {text}")),
        Code::FailedPrecondition => Error::NotNow(text),
        Code::Aborted => Error::Displaced(text),
        Code::Unavailable if found.is_none() => Error::Broken(format!("the server is stopping or busy: {text}")),
        _ if text.contains("invalid compression flag") => Error::Broken(format!(
            "what answers at {} is no federation's server but a web server or a proxy that speaks HTTP: a proxy must pass TLS \
             through as it is (docs/guide/proxies.md)",
            config.server
        )),
        _ => match found {
            Some(found) => Error::Broken(format!("the connection to {} broke: {}", config.server, found.reason())),
            None => Error::Broken(format!("the call failed: {text}")),
        },
    }
}

/// The port does not know a call that every version of the protocol has, although its certificate is the federation's.
pub(crate) fn other_port(config: &ClientConfig) -> Error {
    Error::Protocol(format!(
        "{} is not the main port of a server; is it the enrollment port (`enroll` in server.toml)? `server` in client.toml is the \
         address and port of `listen`",
        config.server
    ))
}

/// The first call on a fresh connection failed as if the line were cut: with TLS 1.3 that is how a server's refusal of
/// our certificate may look.
pub(crate) fn first_call(status: &Status, config: &ClientConfig) -> Error {
    match self::status(status, config) {
        broken @ Error::Broken(_) => match config.own_fault() {
            Some(fault) => Error::Unverified(format!("the server hung up, and {fault}")),
            None => broken,
        },
        other => other,
    }
}

/// A later call failed. That a certificate counts no more while the connection is open may be a clock that was wrong for a moment:
/// the next handshake tells.
pub(crate) fn later_call(status: &Status, config: &ClientConfig) -> Error {
    match self::status(status, config) {
        Error::Refused(why) if status.code() == Code::Unauthenticated => Error::Broken(why),
        other => other,
    }
}

fn hung_up(config: &ClientConfig) -> Error {
    match config.own_fault() {
        Some(fault) => Error::Unverified(format!("the server hung up, and {fault}")),
        None => Error::Unreachable(format!(
            "{} hung up while the connection was made: is it this federation's server, and does it know this client?",
            config.server
        )),
    }
}

fn of_tls(error: &rustls::Error, config: &ClientConfig) -> Error {
    use AlertDescription as Alert;
    let server = &config.server;
    let renew = "ask the operator of the server for a new one (`fl-server issue`)";
    let text = match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "the server at {server} belongs to another federation, or its authority was rotated while this client was off (then \
                 `fl-client enroll LINE --again`): its certificate is not of this client's \
                 `authority`. Check `server` and `authority`"
            ),
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => wrong_time(why, server),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("what answers at {server} is not the federation's server, but another holder of a certificate")
            }
            other => format!("the certificate of the server at {server} cannot be used: {other}"),
        },
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::CertificateExpired => format!("the server says that this client's certificate has expired; {renew}"),
            Alert::UnknownCA | Alert::DecryptError | Alert::BadCertificate => {
                format!(
                    "the server does not know the authority of this client's certificate; {renew}, or append the certificates of \
                     the authorities above it to `certificate`"
                )
            }
            Alert::CertificateRevoked => format!("this client's certificate was revoked; {renew}"),
            Alert::CertificateRequired | Alert::NoCertificate => {
                format!("the server wants a certificate and got none; {renew}")
            }
            Alert::CertificateUnknown | Alert::UnsupportedCertificate | Alert::AccessDenied => {
                format!("the server does not accept this client's certificate ({alert:?}); {renew}")
            }
            other => {
                return Error::Unreachable(format!("the server at {server} broke off the TLS handshake: {other:?}"));
            }
        },
        rustls::Error::InvalidMessage(_) => {
            return Error::Unreachable(format!(
                "what answers at {server} does not speak TLS: is the port right?"
            ));
        }
        other => return Error::Unreachable(format!("TLS with {server} failed: {other}")),
    };
    Error::Unverified(text)
}

/// What it means that the server's certificate is not valid at the time of this device.
pub(crate) fn wrong_time(why: &CertificateError, server: &str) -> String {
    let set = "set the clock (`timedatectl set-ntp true`)";
    match why {
        CertificateError::ExpiredContext { time, not_after } => format!(
            "this device's clock says {}, and the certificate of the server at {server} is valid until {}: either the clock is \
             at least {} days fast, so {set}, or the operator must renew the server's certificate",
            date(time),
            date(not_after),
            days(time, not_after)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "this device's clock says {}, and the certificate of the server at {server} is valid from {} on: the clock is at \
             least {} days slow; {set}",
            date(time),
            date(not_before),
            days(not_before, time)
        ),
        _ => {
            format!("the certificate of the server at {server} is not valid at the time of this device's clock; {set}")
        }
    }
}

fn date(time: &UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.map_or_else(|_| seconds.to_string(), |time| time.date().to_string())
}

fn days(later: &UnixTime, earlier: &UnixTime) -> u64 {
    later.as_secs().saturating_sub(earlier.as_secs()).div_ceil(24 * 3600)
}

/// What is worth knowing along a chain of sources.
pub(crate) struct Sources {
    pub(crate) tls: Option<rustls::Error>,
    io: Option<ErrorKind>,
    last: String,
}

impl Sources {
    pub(crate) fn along(error: &(dyn StdError + 'static)) -> Self {
        let mut found = Self {
            tls: None,
            io: None,
            last: error.to_string(),
        };
        let mut next = Some(error);
        while let Some(error) = next {
            found.last = error.to_string();
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                found.tls = Some(tls.clone());
            }
            next = error.source();
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                found.io = Some(io.kind());
                // An `io::Error` hides what it wraps from `source`.
                next = io.get_ref().map(|inner| inner as &(dyn StdError + 'static));
            }
        }
        found
    }

    fn reason(&self) -> &str {
        match self.io {
            // The text of rustls explains it with a link to its manual; HTTP/2 keeps the text and not the kind.
            _ if self.last.contains("close_notify") => "the server or the network ended it without a word",
            Some(ErrorKind::UnexpectedEof) => "the server or the network ended it without a word",
            Some(ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe) => {
                "the server or the network cut it"
            }
            _ => &self.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_broken_connection_is_said_in_words_of_its_own() {
        let reason = |kind| {
            let error = std::io::Error::new(kind, "see https://example.org/manual#unexpected-eof");
            Sources::along(&error).reason().to_owned()
        };
        assert_eq!(
            reason(ErrorKind::UnexpectedEof),
            "the server or the network ended it without a word"
        );
        let text = "peer closed connection without sending TLS close_notify: https://example.org/manual";
        let error = std::io::Error::other(text);
        assert_eq!(Sources::along(&error).reason(), reason(ErrorKind::UnexpectedEof));
        assert_eq!(reason(ErrorKind::ConnectionReset), "the server or the network cut it");
        assert_eq!(
            reason(ErrorKind::Other),
            "see https://example.org/manual#unexpected-eof"
        );
    }

    #[test]
    fn a_wrong_clock_is_named_with_the_days_that_it_is_off() {
        let at = |days: u64| UnixTime::since_unix_epoch(Duration::from_secs(days * 24 * 3600));
        let fast = CertificateError::ExpiredContext {
            time: at(20_000 + 3_653),
            not_after: at(20_000),
        };
        let text = wrong_time(&fast, "fl.example.org:7070");
        for part in [
            "says 2034-10-05",
            "valid until 2024-10-04",
            "at least 3653 days fast",
            "timedatectl",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let slow = CertificateError::NotValidYetContext {
            time: at(10),
            not_before: at(20_000),
        };
        let text = wrong_time(&slow, "fl.example.org:7070");
        assert!(
            text.contains("says 1970-01-11") && text.contains("19990 days slow"),
            "{text}"
        );
    }
}
