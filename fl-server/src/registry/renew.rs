//! A client renews its certificate.

use fl_proto::{SignedCertificate, SigningRequest};

use crate::clock::Millis;
use crate::registry::book::{Entry, Registry};
use crate::registry::credential::Credential;
use crate::registry::enroll::der_of;
use crate::registry::refusal::Refusal;
use crate::registry::signer::Signer;

/// Certificates that a client may have and not use, at most: each costs the server a signature and a flush of the store.
pub(super) const MOST_UNUSED: usize = 8;

impl Registry {
    /// Signs a new key of a client. The same key gets the same certificate again. The certificate that the client has stays
    /// valid until the new one is used. Blocks: what is replied is durable.
    pub(crate) fn renew(
        &mut self,
        shown: &Credential,
        request: &SigningRequest,
        signer: &Signer,
        lifetime: Millis,
        now: Millis,
    ) -> Result<SignedCertificate, Refusal> {
        let client = &shown.client;
        let role = shown.role;
        let key = request.key();
        // Again: the call may have waited behind a change of an operator.
        if self.standings().refusal(shown).is_some() {
            return Err(Refusal::Ended(client.clone()));
        }
        let record = self.clients.get(client);
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
        self.save_for_device(&[Entry::Client(client)])?;
        Ok(signed.certificate)
    }
}
