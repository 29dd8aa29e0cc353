//! What the server knows of a client.

use std::collections::BTreeSet;
use std::net::IpAddr;

use fl_proto::{Fingerprint, Role};
use serde::{Deserialize, Deserializer, Serialize};

use crate::clock::Millis;
use crate::registry::credential::Credential;
use crate::registry::token::text;

/// Certificates kept of a client, at most: the oldest that is of no use goes first.
const CERTIFICATES: usize = 16;
/// Most tags of a client, and the longest one in bytes.
pub(crate) const MAX_TAGS: usize = 16;
pub(crate) const MAX_TAG: usize = 64;

/// A client as it is stored, under its name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ClientRecord {
    pub(crate) role: Role,
    pub(crate) tags: BTreeSet<String>,
    /// In the order in which they were issued or first seen.
    #[serde(deserialize_with = "exact")]
    pub(crate) certificates: Vec<CertificateRecord>,
    /// Certificates that were issued before this time count no more, also those that are not in the list: a whole second.
    pub(crate) since: Option<Millis>,
    /// When an operator last revoked or forgot it: lines from before do not admit the name.
    pub(crate) ended: Option<Millis>,
    /// When it was enrolled; `None` if its certificate was made by `fl-server issue`.
    pub(crate) enrolled: Option<Millis>,
    pub(crate) first_seen: Option<Millis>,
    pub(crate) last_seen: Option<Millis>,
    /// At the last join.
    pub(crate) address: Option<IpAddr>,
    /// Version of its program and its device, as it says.
    pub(crate) software: String,
    pub(crate) device: String,
    pub(crate) revoked: Option<Box<Exclusion>>,
    pub(crate) rejected: Option<Box<Exclusion>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CertificateRecord {
    #[serde(with = "text")]
    pub(crate) fingerprint: Fingerprint,
    /// Digest of its public key; `None` for one that the registry did not issue.
    #[serde(with = "optional")]
    pub(crate) key: Option<Fingerprint>,
    /// Fingerprint of the authority that signed it; `None` if it is not known.
    #[serde(with = "optional")]
    pub(crate) authority: Option<Fingerprint>,
    pub(crate) issued: Millis,
    pub(crate) expires: Millis,
    /// The certificate as PEM, until it is used: a device that lost the answer gets it again.
    pub(crate) pem: Option<String>,
    pub(crate) used: Option<Millis>,
    /// When a newer one was first used: from then on this one is refused.
    pub(crate) replaced: Option<Millis>,
    pub(crate) revoked: Option<Box<Exclusion>>,
}

/// When and why an operator revoked a client or a certificate, or the server last turned a client away.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Exclusion {
    pub(crate) at: Millis,
    pub(crate) why: String,
}

impl CertificateRecord {
    /// Whether neither an operator nor a newer certificate ended it.
    fn counts(&self) -> bool {
        self.revoked.is_none() && self.replaced.is_none()
    }
}

impl ClientRecord {
    /// What stays of a client that an operator forgot: its certificates count no more.
    pub(crate) fn forgotten(self, now: Millis) -> Self {
        let mut record = Self {
            certificates: self.certificates,
            since: self.since,
            ended: Some(now),
            ..Self::default()
        };
        record.certificates.iter_mut().for_each(|one| one.pem = None);
        record.outdate(now);
        record
    }

    /// Whether nothing is known but that certificates of before do not count.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.since.is_some() && self.revoked.is_none() && self.enrolled.is_none() && self.first_seen.is_none()
    }

    /// From now on no certificate counts that was issued until now, for ever.
    pub(crate) fn outdate(&mut self, now: Millis) {
        self.count_from(now - now % 1000);
        // Those of this very second.
        let all = self.certificates.iter_mut().filter(|one| one.replaced.is_none());
        all.for_each(|one| one.replaced = Some(now));
    }

    fn count_from(&mut self, since: Millis) {
        self.since = self.since.max(Some(since));
    }

    /// The certificate that the client uses: of those that still count, the last one that was used first.
    pub(crate) fn current(&self) -> Option<&CertificateRecord> {
        let used = self
            .certificates
            .iter()
            .filter(|one| one.counts() && one.used.is_some());
        used.max_by_key(|one| one.used)
    }

    /// The certificate with which the client would join now: the one that it uses, or the newest of those that it never used.
    pub(crate) fn next(&self, now: Millis) -> Option<&CertificateRecord> {
        if self.revoked.is_some() {
            return None;
        }
        let current = self.current().filter(|one| one.expires > now);
        current.or_else(|| {
            let mut newest_first = self.certificates.iter().rev();
            newest_first.find(|one| one.counts() && one.expires > now)
        })
    }

    /// The newest certificate for a key that can still be used.
    pub(crate) fn of_key(&self, key: &Fingerprint, now: Millis) -> Option<&CertificateRecord> {
        let mut newest_first = self.certificates.iter().rev();
        newest_first.find(|one| one.key.as_ref() == Some(key) && one.expires > now && one.counts())
    }

    /// Certificates that could be used and never were.
    pub(crate) fn unused(&self, now: Millis) -> usize {
        let all = self.certificates.iter();
        all.filter(|one| one.used.is_none() && one.key.is_some() && one.replaced.is_none() && one.expires > now)
            .count()
    }

    /// Whether the certificate for this key was used.
    pub(crate) fn has_used(&self, key: &Fingerprint) -> bool {
        self.certificates
            .iter()
            .any(|one| one.key.as_ref() == Some(key) && one.used.is_some())
    }

    /// Adds a certificate. Forgets the oldest of the expired or replaced ones if there are too many; a revoked one stays until it
    /// expires.
    pub(crate) fn add(&mut self, certificate: CertificateRecord, now: Millis) {
        // Most clients have one; a vector would begin with room for four.
        self.certificates.reserve_exact(1);
        self.certificates.push(certificate);
        while self.certificates.len() > CERTIFICATES {
            let mut all = self.certificates.iter();
            let useless = all.position(|one| one.expires <= now || (one.replaced.is_some() && one.revoked.is_none()));
            // Where all are of use, the client has asked for many and used none: the oldest that is not in use goes.
            let mut all = self.certificates.iter();
            let unused = all.position(|one| one.used.is_none() && one.revoked.is_none());
            let Some(at) = useless.or(unused) else {
                return;
            };
            self.certificates.remove(at);
        }
    }

    /// Records that the client joined with this certificate. Certificates that were issued before it count no more.
    pub(crate) fn joined(&mut self, shown: &Credential, now: Millis) {
        self.first_seen.get_or_insert(now);
        self.last_seen = Some(now);
        self.role = shown.role;
        let at = self
            .certificates
            .iter()
            .position(|one| one.fingerprint == shown.fingerprint);
        let at = at.unwrap_or_else(|| {
            // `fl-server issue` made it: others of this name that the registry did not issue stay valid.
            let seen = CertificateRecord {
                fingerprint: shown.fingerprint,
                key: None,
                authority: Some(shown.issuer),
                issued: shown.issued(),
                expires: shown.expires(),
                pem: None,
                used: None,
                replaced: None,
                revoked: None,
            };
            self.certificates.reserve_exact(1);
            self.certificates.insert(0, seen);
            0
        });
        let (before, rest) = self.certificates.split_at_mut(at);
        let Some(own) = rest.first_mut() else { return };
        own.pem = None;
        if own.used.is_none() {
            own.used = Some(now);
            if own.key.is_some() {
                let older = before.iter_mut().filter(|one| one.replaced.is_none());
                older.for_each(|one| one.replaced = Some(now));
                self.count_from(shown.issued());
            }
        }
    }
}

/// A vector without room for more, as most clients have one certificate.
fn exact<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Vec::deserialize(from).map(|mut all| {
        all.shrink_to_fit();
        all
    })
}

/// An optional value as its text.
mod optional {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<impl Display>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(n: u8, key: Option<u8>) -> CertificateRecord {
        CertificateRecord {
            fingerprint: Fingerprint([n; 32]),
            key: key.map(|key| Fingerprint([key; 32])),
            authority: None,
            issued: 0,
            expires: 1_000,
            pem: Some("PEM".to_owned()),
            used: None,
            replaced: None,
            revoked: None,
        }
    }

    /// Certificate `n`, issued in second `n`.
    fn shown(n: u8) -> Credential {
        let at = |seconds| time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        Credential {
            client: "anna".parse().unwrap(),
            fingerprint: Fingerprint([n; 32]),
            role: Role::Client,
            lifetime: fl_proto::Lifetime {
                issued: at(n.into()),
                expires: at(1_000),
            },
            issuer: Fingerprint([0; 32]),
        }
    }

    #[test]
    fn the_old_certificate_is_valid_until_the_new_one_is_used() {
        let mut client = ClientRecord::default();
        client.add(certificate(1, Some(1)), 0);
        client.joined(&shown(1), 10);
        client.add(certificate(2, Some(2)), 20);
        client.joined(&shown(1), 30);
        assert_eq!(client.certificates[0].replaced, None);
        client.joined(&shown(2), 40);
        assert_eq!(client.certificates[0].replaced, Some(40));
        assert_eq!(client.of_key(&Fingerprint([1; 32]), 50), None);
        assert!(client.certificates.iter().all(|one| one.pem.is_none()));
    }

    #[test]
    fn the_next_join_is_with_a_certificate_that_counts() {
        let mut client = ClientRecord::default();
        let next = |client: &ClientRecord| client.next(50).map(|one| one.fingerprint);
        let (first, second) = (Some(Fingerprint([1; 32])), Some(Fingerprint([2; 32])));
        client.add(certificate(1, Some(1)), 0);
        assert_eq!(next(&client), first, "never used");
        client.joined(&shown(1), 10);
        client.add(certificate(2, Some(2)), 20);
        assert_eq!(next(&client), first, "in use");
        client.outdate(30_000);
        assert_eq!(next(&client), None);
        client.add(certificate(2, Some(2)), 20);
        assert_eq!(next(&client), second, "the one before was ended");
        client.revoked = Some(Box::default());
        assert_eq!(next(&client), None);
    }

    #[test]
    fn certificates_made_by_hand_replace_none() {
        let mut client = ClientRecord::default();
        for n in [1, 2, 1] {
            client.joined(&shown(n), n.into());
        }
        assert!(client.certificates.iter().all(|one| one.replaced.is_none()));
        assert_eq!((client.certificates.len(), client.first_seen), (2, Some(1)));
    }

    #[test]
    fn the_number_of_certificates_is_bounded_and_revoked_ones_stay() {
        let mut client = ClientRecord::default();
        for n in 0..100 {
            client.add(certificate(n, Some(n)), 0);
            if n == 3 {
                let why = String::new();
                client.certificates[3].revoked = Some(Box::new(Exclusion { at: 0, why }));
            }
        }
        assert_eq!(
            (client.certificates.len(), client.unused(0)),
            (CERTIFICATES, CERTIFICATES)
        );
        assert_eq!(client.unused(1_000), 0, "they have expired");
        assert!(
            client
                .certificates
                .iter()
                .any(|one| one.fingerprint == Fingerprint([3; 32]))
        );
    }

    #[test]
    fn a_record_survives_its_text() {
        let mut full = ClientRecord::default();
        full.add(certificate(1, None), 0);
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<ClientRecord>(&text).unwrap(), full);
    }
}
