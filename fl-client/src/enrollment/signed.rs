//! Checks what the server signed.

use fl_proto::{ClientId, Fingerprint, NewKey, SignedCertificate, peer_expiry, peer_name};
use time::OffsetDateTime;

use crate::error::Error;

/// A device that is enrolled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    /// The name in its certificate.
    pub(crate) name: ClientId,
    /// When the certificate expires.
    pub(crate) expires: OffsetDateTime,
}

/// What the server signed is for this key, and by an authority that this device may trust.
pub(crate) fn checked(signed: &SignedCertificate, key: &NewKey, authority: Fingerprint) -> Result<Done, Error> {
    let wrong = |why: &str| Error::Protocol(format!("the server sent a certificate that cannot be used: {why}"));
    if !signed.authorities.iter().any(|der| Fingerprint::of(der) == authority) {
        return Err(wrong(
            "the authority of the enrollment line is not among its authorities",
        ));
    }
    let certificate = fl_proto::certificate_pem(&signed.certificate);
    if fl_proto::issuer_of(&certificate, &signed.authorities).is_err() {
        return Err(wrong("none of the federation's authorities signed it"));
    }
    if fl_proto::certificate_key(&signed.certificate).ok() != Some(key.key()) {
        return Err(wrong("it is for another key"));
    }
    let name = peer_name(&signed.certificate).map_err(|error| wrong(&error.to_string()))?;
    let expires = peer_expiry(&signed.certificate).map_err(|error| wrong(&error.to_string()))?;
    Ok(Done { name, expires })
}
