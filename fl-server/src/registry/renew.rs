//! A client renews its certificate.

use fl_proto::{ClientId, Fingerprint, Role, SignedCertificate, SigningRequest};

use crate::clock::Millis;
use crate::registry::book::Registry;
use crate::registry::enroll::der_of;
use crate::registry::refusal::Refusal;
use crate::registry::signer::Signer;

/// Certificates that a client may have and not use, at most: each costs the server a signature and a flush of the store.
const MOST_UNUSED: usize = 8;

impl Registry {
    /// Signs a new key of a client. The same key gets the same certificate again. The certificate that the client has stays
    /// valid until the new one is used. Blocks: what is replied is durable.
    ///
    /// # Errors
    /// Why it cannot be signed or stored.
    pub(crate) fn renew(
        &mut self,
        client: &ClientId,
        role: Role,
        request: &SigningRequest,
        signer: &Signer,
        lifetime: Millis,
        now: Millis,
    ) -> Result<SignedCertificate, Refusal> {
        let key: Fingerprint = request.key();
        let record = self.clients.get(client);
        if record.is_some_and(|record| record.revoked.is_some()) {
            return Err(Refusal::TakenRevoked(client.clone()));
        }
        let stored = record.and_then(|record| record.of_key(&key, now));
        if let Some(certificate) = stored.and_then(|stored| stored.pem.as_deref()).and_then(der_of) {
            return Ok(SignedCertificate {
                certificate,
                authorities: signer.authorities()?,
            });
        }
        if record.is_some_and(|record| record.unused(now) >= MOST_UNUSED) {
            return Err(Refusal::Unused(client.clone()));
        }
        let signed = signer.sign(request, client, role, now, lifetime)?;
        self.note(client, role, &key, &signed, now);
        self.save_for_device(&[], &[client])?;
        Ok(signed.certificate)
    }
}

#[cfg(test)]
mod tests {
    use fl_proto::{Authority, NewKey};
    use time::{Duration, OffsetDateTime};

    use super::*;
    use crate::storage::disk::Disk;
    use crate::storage::store::Store;

    #[test]
    fn a_client_that_uses_no_certificate_gets_no_more_and_the_same_key_gets_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (_, root) = Authority::create("fed", now, Duration::days(99)).unwrap();
        let signer = Signer {
            authority: dir.path().join("authority.pem"),
            key: dir.path().join("authority.key"),
        };
        std::fs::write(&signer.authority, &root.certificate).unwrap();
        std::fs::write(&signer.key, &root.key).unwrap();
        let mut registry = Registry::open(Store::open(dir.path(), Disk::default()).unwrap()).unwrap();
        let (client, at) = ("anna".parse().unwrap(), 1_800_000_000_000);
        let mut renew = |der: &[u8], at| {
            let request = SigningRequest::from_der(der).unwrap();
            registry.renew(&client, Role::Client, &request, &signer, 60_000, at)
        };
        let request = || NewKey::generate().unwrap().request(None).unwrap();
        let first = request();
        let certificate = renew(&first, at).unwrap();
        for _ in 1..MOST_UNUSED {
            renew(&request(), at).unwrap();
        }
        assert!(matches!(renew(&request(), at), Err(Refusal::Unused(_))));
        assert_eq!(renew(&first, at).unwrap(), certificate);
        assert!(renew(&request(), at + 60_000).is_ok(), "the others have expired");
    }
}
