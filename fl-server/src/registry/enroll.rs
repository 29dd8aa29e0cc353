//! A device enrolls: decides which name it gets, and signs its request.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use fl_proto::{
    ClientId, Enrolled, Fingerprint, Role, Secret, SignedCertificate, SigningRequest, approval_words, certificates_of,
};

use crate::clock::Millis;
use crate::registry::book::{Entry, Registry};
use crate::registry::client::CertificateRecord;
use crate::registry::refusal::Refusal;
use crate::registry::signer::{SignError, Signer};
use crate::registry::token::{Stage, Token, TokenEnd, Use};

#[derive(Debug)]
pub(crate) struct EnrollmentRequest {
    pub(crate) secret: Secret,
    pub(crate) request: SigningRequest,
    /// The name that it asks for; `None`: the token's, or the next free one.
    pub(crate) name: Option<ClientId>,
    pub(crate) address: IpAddr,
}

/// When a device whose request is held asks again.
const RETRY: Duration = Duration::from_secs(2);

impl Registry {
    /// Signs the request of a device, or holds it for approval. The same key gets the same answer again, until the certificate is
    /// used or the line has expired. `server`: where the device reaches the server. Blocks: what is replied is durable.
    ///
    /// # Errors
    /// Why the device gets no certificate. The token is not used up then.
    pub(crate) fn enroll(
        &mut self,
        asked: &EnrollmentRequest,
        signer: &Signer,
        server: &str,
        now: Millis,
    ) -> Result<Enrolled, Refusal> {
        // By the digest of the secret, whose bits say nothing of another secret: the time tells which numbers are taken, no more.
        let id = Token::id(&asked.secret.digest());
        let token = self.tokens.get(&id).filter(|token| token.is_of(&asked.secret));
        let token = token.ok_or(Refusal::Unknown)?.clone();
        let key = asked.request.key();
        if let Some(at) = token.taken.iter().position(|one| one.key == key) {
            return self.again(&id, &token, at, asked, signer, server, now);
        }
        let (name, number) = self.name(&token, asked, now)?;
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
            address: asked.address,
            stage,
        };
        let words = self.words(&key, signer)?;
        let at = token.taken.len();
        if let Some(token) = self.tokens.get_mut(&id) {
            token.taken.push(used);
            token.next = number;
        }
        let enrolled = match signed {
            None => Enrolled::Held { words, retry: RETRY },
            Some(signed) => {
                self.start_over(&name, now);
                self.note(&name, token.role, &key, &signed, now);
                Enrolled::Issued {
                    certificate: signed.certificate,
                    server: server.to_owned(),
                }
            }
        };
        self.save_for_device(&[Entry::Use(&id, at), Entry::Client(&name)])?;
        Ok(enrolled)
    }

    /// The answer to a device that has called before.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call")]
    fn again(
        &mut self,
        id: &str,
        token: &Token,
        at: usize,
        asked: &EnrollmentRequest,
        signer: &Signer,
        server: &str,
        now: Millis,
    ) -> Result<Enrolled, Refusal> {
        let Some(one) = token.taken.get(at) else {
            return Err(Refusal::Unknown);
        };
        match token.closed(now) {
            Some(TokenEnd::Revoked(at)) => return Err(Refusal::Revoked(at)),
            Some(TokenEnd::Expired(at)) => return Err(Refusal::Expired(at)),
            None | Some(TokenEnd::Used) => {}
        }
        let key = one.key;
        let name = one.name.clone();
        self.refuse_revoked(token, &name)?;
        match one.stage {
            Stage::Denied => return Err(Refusal::Denied(name)),
            Stage::Held => {
                let words = self.words(&key, signer)?;
                return Ok(Enrolled::Held { words, retry: RETRY });
            }
            // The certificate of before and no other: whoever has read the line gets none of its own.
            Stage::Issued => {
                let stored = self.clients.get(&name).and_then(|client| client.of_key(&key, now));
                let certificate = stored.and_then(|stored| stored.pem.as_deref()).and_then(der_of);
                let certificate = SignedCertificate {
                    certificate: certificate.ok_or(Refusal::Used { name, at: one.at })?,
                    authorities: signer.authorities()?,
                };
                let server = server.to_owned();
                return Ok(Enrolled::Issued { certificate, server });
            }
            Stage::Approved => {}
        }
        let signed = signer.sign(&asked.request, &name, token.role, now, token.lifetime)?;
        self.start_over(&name, now);
        self.note(&name, token.role, &key, &signed, now);
        if let Some(one) = self.tokens.get_mut(id).and_then(|token| token.taken.get_mut(at)) {
            one.stage = Stage::Issued;
        }
        self.save_for_device(&[Entry::Use(id, at), Entry::Client(&name)])?;
        Ok(Enrolled::Issued {
            certificate: signed.certificate,
            server: server.to_owned(),
        })
    }

    /// The name for a further device, and its number in a pattern.
    fn name(&self, token: &Token, asked: &EnrollmentRequest, now: Millis) -> Result<(ClientId, u32), Refusal> {
        match (token.closed(now), token.taken.last()) {
            (None, _) => {}
            (Some(TokenEnd::Revoked(at)), _) => return Err(Refusal::Revoked(at)),
            (Some(TokenEnd::Used), Some(last)) => {
                return Err(Refusal::Used {
                    name: last.name.clone(),
                    at: last.at,
                });
            }
            (Some(TokenEnd::Expired(_) | TokenEnd::Used), _) => return Err(Refusal::Expired(token.expires)),
        }
        let waiting: BTreeSet<&ClientId> = self.waiting(now).map(|one| &one.name).collect();
        let is_taken = |name: &ClientId| {
            let client = self.clients.get(name);
            client.is_some_and(|client| !client.is_forgotten()) || waiting.contains(name)
        };
        let is_unfit = |name: &ClientId| is_taken(name) || self.refuse_revoked(token, name).is_err();
        let (name, number) = match &asked.name {
            Some(name) if !token.names.allows(name) => {
                return Err(Refusal::OtherName {
                    asked: name.clone(),
                    names: token.names.clone(),
                });
            }
            Some(name) => (name.clone(), token.next),
            None => {
                let free = token.names.first_free(token.next, is_unfit);
                let free = free.or_else(|| token.names.first_free(0, is_unfit));
                free.ok_or_else(|| Refusal::NoName(token.names.clone()))?
            }
        };
        self.refuse_revoked(token, &name)?;
        if is_taken(&name) && !token.again {
            return Err(Refusal::Taken(name));
        }
        Ok((name, number))
    }

    /// Refuses a revoked name, unless the line was opened for a new device of this name after the revocation; and a line that was
    /// opened before an operator ended what the name had.
    fn refuse_revoked(&self, token: &Token, name: &ClientId) -> Result<(), Refusal> {
        let client = self.clients.get(name);
        let ended = client.and_then(|client| client.ended);
        match client.and_then(|client| client.revoked.as_ref()) {
            Some(revoked) if !token.admits_revoked(revoked.at) => Err(Refusal::TakenRevoked(name.clone())),
            _ if ended.is_some_and(|ended| token.created < ended) => Err(Refusal::Ended(name.clone())),
            _ => Ok(()),
        }
    }

    /// Before a new device takes a revoked name: no certificate of before counts again.
    fn start_over(&mut self, name: &ClientId, now: Millis) {
        if let Some(client) = self.clients.get_mut(name).filter(|client| client.revoked.is_some()) {
            client.revoked = None;
            client.outdate(now);
        }
    }

    pub(super) fn note(
        &mut self,
        name: &ClientId,
        role: Role,
        key: &Fingerprint,
        signed: &super::signer::NewCertificate,
        now: Millis,
    ) {
        let client = self.clients.entry(name.clone()).or_default();
        client.role = role;
        // A clock that was ahead has set it.
        client.since = client.since.min(Some(now - now % 1000));
        client.enrolled.get_or_insert(now);
        let certificate = CertificateRecord {
            fingerprint: signed.fingerprint,
            key: Some(*key),
            authority: Some(signed.authority),
            issued: now,
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

pub(super) fn der_of(pem: &str) -> Option<Vec<u8>> {
    certificates_of(pem).ok()?.into_iter().next()
}
