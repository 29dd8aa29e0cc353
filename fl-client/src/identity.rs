//! The client's own certificate, as far as the client can judge it.

use fl_proto::expiry;
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;

use crate::config::ClientConfig;
use crate::error::Error;

/// When the client's certificate ends.
///
/// # Errors
/// `Config` if the authority's certificate or the client's own is not one.
pub fn check_certificates(config: &ClientConfig) -> Result<OffsetDateTime, Error> {
    expiry(&config.authority).map_err(|e| Error::Config(format!("`authority`: {e}")))?;
    expiry(&config.own.certificate).map_err(|e| Error::Config(format!("`certificate`: {e}")))
}

/// What is evidently wrong with the client's own certificate, as the end of a sentence. `None` does not mean that it is
/// good: only the server can say that.
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
    // Federations may have one name; what tells them apart is the authority's key.
    let foreign = own.verify_signature(Some(authority.public_key())).is_err();
    foreign.then(|| {
        format!("this client's certificate is of another authority that is also called `{name}`; check `certificate`")
    })
}
