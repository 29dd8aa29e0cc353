//! The client's own certificate, as far as the client can check it, and its files.

mod files;
mod pair;

pub(crate) use files::Fault;
pub use files::IdentityFiles;
pub(crate) use pair::{
    discard, is_half_promoted, is_pending, newest, pending_key, promote, save_next_certificate, save_next_key,
};

use fl_proto::{Issued, TlsError, certificates_of, expiry, issuer_of};
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;

/// An evident fault of the client's own certificate, as the end of a sentence. `None` does not mean that the certificate is
/// valid: only the server can decide that.
pub(crate) fn own_fault(own: &Issued, authority: &str, now: OffsetDateTime) -> Option<String> {
    let ends = expiry(&own.certificate).ok()?;
    if ends < now {
        return Some(format!(
            "this client's certificate expired on {}; ask the operator for a line (`fl-server enroll NAME --again`), then type \
             `fl-client enroll LINE --again` in the folder of client.toml",
            ends.date()
        ));
    }
    let (_, first) = parse_x509_pem(own.certificate.as_bytes()).ok()?;
    let first = first.parse_x509().ok()?;
    let uses = first.extended_key_usage().ok()?;
    if first.is_ca() || uses.is_some_and(|uses| !uses.value.client_auth && !uses.value.any) {
        return Some(
            "this is not a client's certificate; `certificate` is the client.pem that `fl-server issue` made".into(),
        );
    }
    let Err(TlsError::Issuer(issuer)) = issuer_of(&own.certificate, &certificates_of(authority).ok()?) else {
        return None;
    };
    let (_, authority) = parse_x509_pem(authority.as_bytes()).ok()?;
    let name = authority.parse_x509().ok()?.subject().to_string();
    // Two federations may have the same name; the authority's key distinguishes them.
    Some(match issuer == name {
        true => {
            format!(
                "this client's certificate is of another authority that is also called `{name}`; check `certificate`"
            )
        }
        false => format!(
            "this client's certificate is of `{issuer}`, not of `{name}`; check `certificate`, and append the certificates of the \
             authorities in between to it"
        ),
    })
}
