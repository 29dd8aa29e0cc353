//! The client's own certificate, as far as the client can check it.

use fl_proto::expiry;
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;

use crate::config::ClientConfig;
use crate::error::Error;

/// Expiry of the client's certificate.
///
/// # Errors
/// `Config` if the authority's certificate or the client's own cannot be parsed.
pub fn check_certificates(config: &ClientConfig) -> Result<OffsetDateTime, Error> {
    expiry(&config.authority).map_err(|e| Error::Config(format!("`authority`: {e}")))?;
    expiry(&config.own.certificate).map_err(|e| Error::Config(format!("`certificate`: {e}")))
}

/// An evident fault of the client's own certificate, as the end of a sentence. `None` does not mean that the certificate is
/// valid: only the server can decide that.
pub(crate) fn own_fault(config: &ClientConfig) -> Option<String> {
    let ends = expiry(&config.own.certificate).ok()?;
    if ends < OffsetDateTime::now_utc() {
        return Some(format!(
            "this client's certificate ended on {}; ask for a new one",
            ends.date()
        ));
    }
    let (_, own) = parse_x509_pem(config.own.certificate.as_bytes()).ok()?;
    let (_, authority) = parse_x509_pem(config.authority.as_bytes()).ok()?;
    let (own, authority) = (own.parse_x509().ok()?, authority.parse_x509().ok()?);
    let uses = own.extended_key_usage().ok()?;
    if own.is_ca() || uses.is_some_and(|uses| !uses.value.client_auth && !uses.value.any) {
        return Some(
            "this is not a client's certificate; `certificate` is the client.pem that `fl-server issue` made".into(),
        );
    }
    let (issuer, name) = (own.issuer().to_string(), authority.subject().to_string());
    if issuer != name {
        return Some(format!(
            "this client's certificate is of `{issuer}`, not of `{name}`; check `certificate`"
        ));
    }
    // Two federations may have the same name; the authority's key distinguishes them.
    let foreign = own.verify_signature(Some(authority.public_key())).is_err();
    foreign.then(|| {
        format!("this client's certificate is of another authority that is also called `{name}`; check `certificate`")
    })
}
