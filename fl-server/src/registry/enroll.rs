//! A device enrolls: decides which name it gets, and signs its request.

use std::net::IpAddr;
use std::time::Duration;

use fl_proto::{
    ClientId, Enrolled, Fingerprint, Role, Secret, SignedCertificate, SigningRequest, approval_words, certificates_of,
};

use crate::clock::Millis;
use crate::registry::book::Registry;
use crate::registry::client::{CertificateRecord, ClientRecord};
use crate::registry::refusal::Refusal;
use crate::registry::signer::{SignError, Signer};
use crate::registry::token::{Closed, Stage, Token, Use};

/// What a device asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) secret: Secret,
    pub(crate) request: SigningRequest,
    /// The name that it asks for; `None`: the token's, or the next free one.
    pub(crate) name: Option<ClientId>,
    pub(crate) address: IpAddr,
}

/// When a device whose request is held asks again.
const RETRY: Duration = Duration::from_secs(2);

impl Registry {
    /// Signs the request of a device, or holds it for approval. The same key gets the same answer again. `server`: where the
    /// device reaches the server. Blocks: what is replied is durable.
    ///
    /// # Errors
    /// Why the device gets no certificate. The token is not used up then.
    pub(crate) fn enroll(
        &mut self,
        asked: &Asked,
        signer: &Signer,
        server: &str,
        now: Millis,
    ) -> Result<Enrolled, Refusal> {
        // All are compared, so that the time does not say which one is close.
        let compared = self
            .tokens
            .iter()
            .fold(None, |found, (id, token)| match token.is_of(&asked.secret) {
                true => Some(id.clone()),
                false => found,
            });
        let id = compared.ok_or(Refusal::Unknown)?;
        let token = self.tokens.get(&id).ok_or(Refusal::Unknown)?.clone();
        let key = asked.request.key();
        if let Some(at) = token.taken.iter().position(|one| one.key == key) {
            return self.again(&id, &token, at, asked, signer, server, now);
        }
        let name = self.name(&token, asked, now)?;
        let stage = if token.approve { Stage::Held } else { Stage::Issued };
        // Before the token is used up: the device gets nothing if it cannot be signed.
        let signed = match stage {
            Stage::Issued => Some(signer.sign(&asked.request, &name, token.role, now, token.lifetime)?),
            _ if signer.has_key() => None,
            _ => return Err(SignError::NoKey(signer.key.clone()).into()),
        };
        let used = Use {
            key,
            name: name.clone(),
            at: now,
            address: asked.address.to_string(),
            stage,
        };
        let words = self.words(&key, signer)?;
        if let Some(token) = self.tokens.get_mut(&id) {
            token.taken.push(used);
        }
        let enrolled = match signed {
            None => Enrolled::Held { words, retry: RETRY },
            Some(signed) => {
                self.note(&name, token.role, &key, &signed, now);
                Enrolled::Issued {
                    certificate: signed.certificate,
                    server: server.to_owned(),
                }
            }
        };
        let saved = self.save_for_device(&[&id], &[&name]);
        if saved.is_err()
            && let Some(token) = self.tokens.get_mut(&id)
        {
            token.taken.pop();
        }
        saved.map(|()| enrolled)
    }

    /// The answer to a device that has called before.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call")]
    fn again(
        &mut self,
        id: &str,
        token: &Token,
        at: usize,
        asked: &Asked,
        signer: &Signer,
        server: &str,
        now: Millis,
    ) -> Result<Enrolled, Refusal> {
        let Some(one) = token.taken.get(at) else {
            return Err(Refusal::Unknown);
        };
        if let Some(at) = token.revoked {
            return Err(Refusal::Revoked(at));
        }
        let client = self.clients.get(&one.name);
        if client.is_some_and(|client| client.revoked.is_some()) {
            return Err(Refusal::TakenRevoked(one.name.clone()));
        }
        match one.stage {
            Stage::Denied => return Err(Refusal::Denied(one.name.clone())),
            Stage::Held if now >= token.expires => return Err(Refusal::Expired(token.expires)),
            Stage::Held => {
                let words = self.words(&one.key, signer)?;
                return Ok(Enrolled::Held { words, retry: RETRY });
            }
            Stage::Approved | Stage::Issued => {}
        }
        let stored = client.and_then(|client| client.of_key(&one.key, now));
        if let Some(certificate) = stored.and_then(|stored| stored.pem.as_deref()).and_then(der_of) {
            let certificate = SignedCertificate {
                certificate,
                authorities: signer.authorities()?,
            };
            let server = server.to_owned();
            return Ok(Enrolled::Issued { certificate, server });
        }
        let (key, name) = (one.key, one.name.clone());
        let signed = signer.sign(&asked.request, &name, token.role, now, token.lifetime)?;
        self.note(&name, token.role, &key, &signed, now);
        if let Some(one) = self.tokens.get_mut(id).and_then(|token| token.taken.get_mut(at)) {
            one.stage = Stage::Issued;
        }
        self.save_for_device(&[id], &[&name])?;
        Ok(Enrolled::Issued {
            certificate: signed.certificate,
            server: server.to_owned(),
        })
    }

    /// The name for a further device.
    fn name(&self, token: &Token, asked: &Asked, now: Millis) -> Result<ClientId, Refusal> {
        match (token.closed(now), token.taken.last()) {
            (None, _) => {}
            (Some(Closed::Revoked(at)), _) => return Err(Refusal::Revoked(at)),
            (Some(Closed::Used), Some(last)) => {
                let (name, at) = (last.name.clone(), last.at);
                return Err(Refusal::Used { name, at });
            }
            (Some(Closed::Expired(_) | Closed::Used), _) => return Err(Refusal::Expired(token.expires)),
        }
        let name = match &asked.name {
            Some(name) if !token.names.allows(name) => {
                let (asked, names) = (name.clone(), token.names.clone());
                return Err(Refusal::OtherName { asked, names });
            }
            Some(name) => name.clone(),
            None => {
                let free = token.names.first_free(|name| self.is_taken(name));
                free.ok_or_else(|| Refusal::NoName(token.names.clone()))?
            }
        };
        match self.clients.get(&name) {
            Some(client) if client.revoked.is_some() => Err(Refusal::TakenRevoked(name)),
            _ if self.is_taken(&name) && !token.again => Err(Refusal::Taken(name)),
            _ => Ok(name),
        }
    }

    /// Whether a client has this name, or a device that waits for approval will have it.
    fn is_taken(&self, name: &ClientId) -> bool {
        let waits = |one: &Use| one.name == *name && one.stage == Stage::Held;
        self.clients.contains_key(name) || self.tokens.values().any(|token| token.taken.iter().any(waits))
    }

    /// Adds a certificate to its client.
    pub(super) fn note(
        &mut self,
        name: &ClientId,
        role: Role,
        key: &Fingerprint,
        signed: &super::signer::Signed,
        now: Millis,
    ) {
        let client = self.clients.entry(name.clone()).or_insert_with(|| ClientRecord {
            role,
            ..ClientRecord::default()
        });
        client.enrolled.get_or_insert(now);
        let certificate = CertificateRecord {
            fingerprint: signed.fingerprint,
            key: Some(*key),
            authority: Some(signed.authority),
            expires: signed.expires,
            pem: Some(fl_proto::certificate_pem(&signed.certificate.certificate)),
            used: None,
            replaced: None,
            revoked: None,
        };
        client.add(certificate, now);
    }

    /// The words of a key that waits for approval.
    pub(super) fn words(&self, key: &Fingerprint, signer: &Signer) -> Result<String, Refusal> {
        let authorities = signer.authorities()?;
        let first = authorities.first().map(|der| Fingerprint::of(der));
        Ok(first.map_or_else(String::new, |first| approval_words(key, &first)))
    }
}

/// The certificate of a PEM text.
pub(super) fn der_of(pem: &str) -> Option<Vec<u8>> {
    certificates_of(pem).ok()?.into_iter().next()
}
