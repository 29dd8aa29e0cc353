//! The client's own certificate, as far as the client can judge it.

use fl_proto::expiry;
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;

use crate::{ClientConfig, Error};

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
    let (issuer, authority) = (
        name_of(&config.own.certificate, false)?,
        name_of(&config.authority, true)?,
    );
    (issuer != authority)
        .then(|| format!("this client's certificate is of `{issuer}`, not of `{authority}`; check `certificate`"))
}

fn name_of(pem: &str, subject: bool) -> Option<String> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    Some(if subject {
        certificate.subject().to_string()
    } else {
        certificate.issuer().to_string()
    })
}
