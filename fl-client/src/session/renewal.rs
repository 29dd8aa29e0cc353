//! Renews the client's certificate at two thirds of its lifetime, over the connection that the old one opened.

use std::time::Duration;

use fl_proto::{
    Fingerprint, Issued, Lifetime, NewKey, certificate_pem, certificates_of, issuer_of, peer_name, peer_role,
};
use time::OffsetDateTime;

use crate::enrollment::checked;
use crate::error::Error;
use crate::identity::{IdentityFiles, pending_key, save_next_certificate, save_next_key};
use crate::rpc::Rpc;

/// How far the clock of the server that issued the certificate at this moment is ahead of `now`, this device's clock.
pub(super) fn clock_offset(own: &Issued, now: OffsetDateTime) -> time::Duration {
    let lifetime = Lifetime::of_pem(&own.certificate);
    lifetime.map_or(time::Duration::ZERO, |lifetime| lifetime.issued - now)
}

/// How long from `now` until the certificate is to be renewed: zero if it is due. `None` if it cannot be read.
pub(super) fn due(own: &Issued, now: OffsetDateTime) -> Option<Duration> {
    let at = Lifetime::of_pem(&own.certificate).ok()?.renewal();
    Some(Duration::try_from(at - now).unwrap_or(Duration::ZERO))
}

/// How long to wait after a renewal that failed.
pub(super) fn retry(own: &Issued, now: OffsetDateTime) -> Duration {
    Lifetime::of_pem(&own.certificate).map_or(Duration::from_secs(3600), |lifetime| lifetime.retry(now))
}

/// Asks for a certificate of a new key and writes both beside those in use. A renewal that was interrupted continues with
/// its key, for which the server has the same answer. On an error, the pair in use is unchanged.
pub(super) async fn renew(rpc: &mut Rpc, files: &IdentityFiles, authority: &str, own: &Issued) -> Result<(), Error> {
    let unusable = |error: fl_proto::TlsError| Error::Crashed(format!("renewal: {error}"));
    let key = match pending_key(files) {
        Some(key) => key,
        None => {
            let key = NewKey::generate().map_err(unusable)?;
            save_next_key(files, &key)?;
            key
        }
    };
    let signed = rpc.renew(key.request(None).map_err(unusable)?).await?;
    let trusted = certificates_of(authority).map_err(unusable)?;
    // Beside the authority that this client trusts, the server may name another, which takes over.
    let known = signed
        .authorities
        .iter()
        .find(|der| trusted.contains(der))
        .ok_or_else(|| {
            Error::Protocol(
                "the server renewed the certificate, but does not name the authority of this client".to_owned(),
            )
        })?;
    checked(&signed, &key, Fingerprint::of(known))?;
    let kept = vouched(&signed.authorities, &trusted);
    if issuer_of(&certificate_pem(&signed.certificate), &kept).is_err() {
        return Err(Error::Protocol(
            "the server renewed the certificate by an authority that none of this client's has signed".to_owned(),
        ));
    }
    let before = certificates_of(&own.certificate).map_err(unusable)?;
    let before = before.first().map_or(&[][..], Vec::as_slice);
    let is_same_name = peer_name(&signed.certificate).map_err(unusable)? == peer_name(before).map_err(unusable)?;
    let is_same_role = peer_role(&signed.certificate).map_err(unusable)? == peer_role(before).map_err(unusable)?;
    if !is_same_name || !is_same_role {
        return Err(Error::Protocol(
            "the server renewed the certificate for another name or role".to_owned(),
        ));
    }
    if kept != trusted {
        replace_authority(files, authority, &text(&kept))?;
    }
    save_next_certificate(files, &certificate_pem(&signed.certificate))
}

/// Those of `authorities` that are trusted already, or signed by one that is: one that was replaced does not come back.
fn vouched(authorities: &[Vec<u8>], trusted: &[Vec<u8>]) -> Vec<Vec<u8>> {
    authorities
        .iter()
        .filter(|der| trusted.contains(der) || issuer_of(&certificate_pem(der), trusted).is_ok())
        .cloned()
        .collect()
}

/// The authorities that are needed after a rotation, PEM; `None` if all are. One is not needed where another that it signed has
/// signed the certificates of the server and of this client: somebody may have a server's key of its time.
pub(super) fn after_rotation(trusted: &str, own: &Issued, server: &str) -> Option<String> {
    let trusted = certificates_of(trusted).ok()?;
    let present = issuer_of(server, &trusted).ok()?;
    let rest: Vec<_> = trusted
        .iter()
        .filter(|der| *der == present || issuer_of(&certificate_pem(present), std::slice::from_ref(der)).is_err())
        .cloned()
        .collect();
    (rest.len() < trusted.len() && issuer_of(&own.certificate, &rest).is_ok()).then(|| text(&rest))
}

/// Writes the authorities, if those in use are still those of the file: somebody may have enrolled the folder elsewhere meanwhile.
pub(super) fn replace_authority(files: &IdentityFiles, before: &str, after: &str) -> Result<(), Error> {
    let path = &files.authority;
    let found = std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", &error))?;
    if found == after {
        return Ok(());
    }
    if found != before {
        let why = "was changed by somebody else; send the client SIGHUP, or restart it";
        return Err(Error::state(path, why));
    }
    files.write(path, after)
}

fn text(authorities: &[Vec<u8>]) -> String {
    authorities.iter().map(|der| certificate_pem(der)).collect()
}

#[cfg(test)]
mod tests {
    use fl_proto::Authority;

    use super::*;

    #[test]
    fn a_renewal_brings_the_next_authority_and_not_the_one_before() {
        let (now, days) = (OffsetDateTime::now_utc(), time::Duration::days(9));
        let (authority, old) = Authority::create("fed", now, days).unwrap();
        let new = authority.successor("fed", now, days).unwrap();
        let [old, new] = [old, new].map(|issued| certificates_of(&issued.certificate).unwrap().remove(0));
        let both = [old, new];
        let [old, new] = [&both[..1], &both[1..]];
        assert_eq!(
            (vouched(&both, old), vouched(&both, &both)),
            (both.to_vec(), both.to_vec())
        );
        assert_eq!((vouched(new, old), vouched(&both, new)), (new.to_vec(), new.to_vec()));
    }

    #[test]
    fn the_authority_before_is_dropped_once_server_and_client_have_certificates_of_the_next() {
        let (now, days) = (OffsetDateTime::now_utc(), time::Duration::days(9));
        let (authority, old) = Authority::create("fed", now, days).unwrap();
        let new = authority.successor("fed", now, days).unwrap();
        let both = old.certificate.clone() + &new.certificate;
        let next = Authority::from_pem(&new).unwrap();
        let of = |by: &Authority| {
            let own = by.issue_client(&"anna".parse().unwrap(), now, days).unwrap();
            (by.issue_server(now, days).unwrap().certificate.clone(), own)
        };
        let ((old_server, old_own), (new_server, new_own)) = (of(&authority), of(&next));
        assert_eq!(
            after_rotation(&both, &new_own, &new_server),
            Some(text(&certificates_of(&new.certificate).unwrap()))
        );
        for (trusted, own, server) in [
            (&both, &new_own, &old_server),
            (&both, &old_own, &new_server),
            (&new.certificate, &new_own, &new_server),
            (&old.certificate, &old_own, &old_server),
            (&both, &new_own, &String::new()),
        ] {
            assert_eq!(after_rotation(trusted, own, server), None);
        }
    }

    #[test]
    fn a_certificate_is_due_at_two_thirds_of_its_lifetime() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let days = time::Duration::days;
        let (authority, _) = Authority::create("fed", now, days(99)).unwrap();
        let own = authority.issue_client(&"anna".parse().unwrap(), now, days(30)).unwrap();
        assert_eq!(due(&own, now), Some(Duration::from_secs(20 * 24 * 3600)));
        assert_eq!(due(&own, now + days(20)), Some(Duration::ZERO));
        assert_eq!(due(&own, now + days(50)), Some(Duration::ZERO));
        assert_eq!(retry(&own, now + days(20)), Duration::from_secs(3600));
        assert_eq!(retry(&own, now + days(50)), Duration::from_secs(10));
        let none = Issued {
            certificate: String::new(),
            key: String::new(),
        };
        assert_eq!(due(&none, now), None);
    }
}
