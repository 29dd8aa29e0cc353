//! Checks what the server signed.

use fl_proto::{ClientId, Fingerprint, NewKey, SignedCertificate, certificate_pem, issuer_of, peer_expiry, peer_name};
use time::OffsetDateTime;

use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Enrollment {
    /// The name in its certificate.
    pub(crate) name: ClientId,
    pub(crate) expires: OffsetDateTime,
}

/// What the server signed is for this key, and by an authority that this device may trust.
pub(crate) fn checked(signed: &SignedCertificate, key: &NewKey, authority: Fingerprint) -> Result<Enrollment, Error> {
    let trusted = signed.authorities.iter().find(|der| Fingerprint::of(der) == authority);
    let trusted = trusted.ok_or_else(|| wrong("the authority that this device trusts is not among its authorities"))?;
    // Whoever holds the server's key must not bring an authority of its own: during a rotation, the old one has signed the new one.
    let mut authorities = signed.authorities.iter();
    if let Some(foreign) =
        authorities.find(|der| *der != trusted && !is_signed_by(der, trusted) && !is_signed_by(trusted, der))
    {
        let foreign = Fingerprint::of(foreign);
        return Err(wrong(&format!(
            "it names the authority {foreign}, which the one that this device trusts has not signed"
        )));
    }
    let certificate = certificate_pem(&signed.certificate);
    if issuer_of(&certificate, &signed.authorities).is_err() {
        return Err(wrong("none of the federation's authorities signed it"));
    }
    if fl_proto::certificate_key(&signed.certificate).ok() != Some(key.key()) {
        return Err(wrong("it is for another key"));
    }
    let name = peer_name(&signed.certificate).map_err(|error| wrong(&error.to_string()))?;
    let expires = peer_expiry(&signed.certificate).map_err(|error| wrong(&error.to_string()))?;
    Ok(Enrollment { name, expires })
}

fn is_signed_by(der: &[u8], by: &[u8]) -> bool {
    issuer_of(&certificate_pem(der), &[by.to_vec()]).is_ok()
}

fn wrong(why: &str) -> Error {
    Error::Protocol(format!("the server sent a certificate that cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use fl_proto::{Authority, Issued, Role, SigningRequest, certificates_of};
    use time::Duration;

    use super::*;

    #[test]
    fn an_authority_counts_only_with_the_signature_of_the_trusted_one() {
        let (now, days) = (OffsetDateTime::now_utc(), Duration::days(9));
        let der = |issued: &Issued| certificates_of(&issued.certificate).unwrap().remove(0);
        let (authority, old) = Authority::create("fed", now, days).unwrap();
        let new = authority.successor("fed", now, days).unwrap();
        let (_, foreign) = Authority::create("fed", now, days).unwrap();
        let key = NewKey::generate().unwrap();
        let request = SigningRequest::from_der(&key.request(None).unwrap()).unwrap();
        let name = "anna".parse().unwrap();
        let check = |by: &Issued, all: &[&Issued], trusted: &Issued| {
            let by = Authority::from_pem(by).unwrap();
            let signed = SignedCertificate {
                certificate: by.sign(&request, &name, Role::Client, now, days).unwrap(),
                authorities: all.iter().map(|one| der(one)).collect(),
            };
            checked(&signed, &key, Fingerprint::of(&der(trusted)))
        };
        for by in [&old, &new] {
            for trusted in [&old, &new] {
                assert_eq!(check(by, &[&old, &new], trusted).unwrap().name, name);
            }
        }
        assert!(check(&new, &[&new], &new).is_ok() && check(&old, &[&old], &old).is_ok());
        for (by, all, trusted) in [
            (&old, vec![&old, &foreign], &old),
            (&foreign, vec![&foreign, &old], &old),
            (&foreign, vec![&foreign, &old, &new], &new),
            (&foreign, vec![&foreign], &old),
            (&foreign, vec![&old], &old),
        ] {
            assert!(check(by, &all, trusted).is_err());
        }
    }
}
