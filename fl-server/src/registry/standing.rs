//! What the registry refuses, and which secrets it knows, for the calls of every connection. The lock is never held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use fl_compress::Digest;
use fl_proto::{ClientId, Fingerprint, Secret};

use crate::clock::Millis;
use crate::registry::client::ClientRecord;
use crate::registry::credential::Credential;
use crate::registry::token::Token;

/// The names of which the registry refuses something, and the digests of the secrets of its lines. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standings(Arc<RwLock<Table>>);

#[derive(Debug, Default)]
struct Table {
    refused: BTreeMap<ClientId, Standing>,
    lines: BTreeSet<Digest>,
}

/// What the registry refuses of one name: of most, `since` alone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Standing {
    /// Certificates issued before this time.
    since: Millis,
    more: Option<Box<More>>,
}

#[derive(Debug, PartialEq, Eq)]
struct More {
    /// Everything, for the operator's reason.
    revoked: Option<String>,
    /// Single certificates, and whether an operator revoked them; the others were replaced.
    certificates: Vec<(Fingerprint, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CertificateRefusal {
    /// The operator's reason, which may be empty.
    Name(String),
    Certificate,
    /// A newer certificate of its name counts in its place, or its name was forgotten.
    Replaced,
}

impl Standings {
    /// Takes over what a record says; `None`: nothing.
    pub(crate) fn update(&self, client: &ClientId, record: Option<&ClientRecord>) {
        let standing = record.map(Standing::of).unwrap_or_default();
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if standing == Standing::default() {
            table.refused.remove(client);
        } else {
            table.refused.insert(client.clone(), standing);
        }
    }

    /// Takes over the secrets of lines: these are there, and those are gone.
    pub(super) fn lines<'a>(
        &self,
        there: impl IntoIterator<Item = &'a Token>,
        gone: impl IntoIterator<Item = &'a Token>,
    ) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for token in gone {
            table.lines.remove(&token.secret);
        }
        table.lines.extend(there.into_iter().map(|token| token.secret));
    }

    /// Whether a line has this secret, whatever became of it. By its digest, whose bits say nothing of other secrets.
    pub(crate) fn knows(&self, secret: &Secret) -> bool {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.lines.contains(&secret.digest())
    }

    /// Why this certificate is refused, if it is.
    pub(crate) fn refusal(&self, shown: &Credential) -> Option<CertificateRefusal> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.refused.get(&shown.client)?.refusal(shown)
    }
}

impl Standing {
    fn of(record: &ClientRecord) -> Self {
        let certificates = record.certificates.iter();
        let refused = certificates.filter(|one| one.revoked.is_some() || one.replaced.is_some());
        let more = More {
            revoked: record.revoked.as_ref().map(|revoked| revoked.why.clone()),
            certificates: refused.map(|one| (one.fingerprint, one.revoked.is_some())).collect(),
        };
        let has_more = more.revoked.is_some() || !more.certificates.is_empty();
        Self {
            since: record.since.unwrap_or(0),
            more: has_more.then(|| Box::new(more)),
        }
    }

    fn refusal(&self, shown: &Credential) -> Option<CertificateRefusal> {
        if let Some(why) = self.more.as_ref().and_then(|more| more.revoked.as_ref()) {
            return Some(CertificateRefusal::Name(why.clone()));
        }
        let mut single = self.more.iter().flat_map(|more| &more.certificates);
        match single.find(|(of, _)| *of == shown.fingerprint) {
            Some((_, true)) => Some(CertificateRefusal::Certificate),
            Some((_, false)) => Some(CertificateRefusal::Replaced),
            None if shown.issued() < self.since => Some(CertificateRefusal::Replaced),
            None => None,
        }
    }
}
