//! The call of enrollment.

use std::error::Error as _;
use std::time::Duration;

use fl_proto::wire::enrollment_client::EnrollmentClient;
use fl_proto::{
    ClientId, Dial, Enrolled, EnrollmentLine, ForeignAuthority, MAX_REASON, NewKey, PROTOCOL_MAJOR, foreign_text,
    pinned_client_tls, wire,
};
use rustls::CertificateError;
use tonic::{Code, Request, Status};

use crate::error::Error;
use crate::error_mapping::{Sources, unreachable, wrong_time};

/// Longest answer: certificates.
const MAX_MESSAGE: usize = 128 * 1024;
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Sends the request for `key`. The secret leaves this device only after the server has proved to belong to the line's
/// authority.
pub(super) async fn enroll(line: &EnrollmentLine, key: &NewKey, name: Option<&ClientId>) -> Result<Enrolled, Error> {
    let address = &line.address;
    let internal = |error: fl_proto::TlsError| Error::Config(format!("this device's key cannot be used: {error}"));
    let request = key.request(name).map_err(internal)?;
    let dial = Dial::new(address.clone(), pinned_client_tls(line.authority).map_err(internal)?);
    let channel = fl_proto::dial(dial).await.map_err(|error| transport(&error, address))?;
    let mut calls = EnrollmentClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
    let mut request = Request::new(wire::EnrollRequest {
        protocol_major: PROTOCOL_MAJOR,
        secret: line.secret.as_bytes().to_vec().into(),
        request: request.into(),
        name: name.map_or_else(String::new, ToString::to_string),
    });
    request.set_timeout(CALL_TIMEOUT);
    let reply = calls
        .enroll(request)
        .await
        .map_err(|status| refused(&status, address))?;
    Ok(reply.into_inner().try_into()?)
}

fn transport(error: &(dyn std::error::Error + 'static), address: &str) -> Error {
    let found = Sources::along(error);
    match &found.tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.0.downcast_ref::<ForeignAuthority>().is_some() =>
        {
            Error::Refused(format!(
                "what answers at {address} does not belong to the federation of this line; the secret was not sent. Another server \
                 has taken the address, or somebody answers in its place: ask the operator for a new line"
            ))
        }
        Some(rustls::Error::InvalidCertificate(
            why @ (CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }),
        )) => Error::Refused(wrong_time(why, address)),
        Some(tls) => Error::Unreachable(format!(
            "what answers at {address} is not the enrollment port of a federation: {tls}"
        )),
        None => {
            match unreachable(&found, address, || {
                Error::Broken(format!("{address} hung up: the server may be busy with other devices"))
            }) {
                Error::Unreachable(text) if text.starts_with("nothing listens") => Error::Unreachable(format!(
                    "nothing listens at {address}: the port is open only while the server runs and a line is valid; ask the \
                     operator whether it runs, and for a new line"
                )),
                error => error,
            }
        }
    }
}

fn refused(status: &Status, address: &str) -> Error {
    let text = foreign_text(status.message(), MAX_REASON);
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied | Code::AlreadyExists | Code::FailedPrecondition => {
            Error::Refused(text)
        }
        Code::InvalidArgument => Error::Protocol(format!("the server refuses the request: {text}")),
        Code::Unimplemented => {
            Error::Unreachable(format!("{address} is not the enrollment port of a federation: {text}"))
        }
        _ if status.source().is_some() => Error::Broken(format!("the connection to {address} broke")),
        _ => Error::Broken(format!("the server cannot enroll this device now: {text}")),
    }
}
