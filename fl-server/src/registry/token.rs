//! Enrollment tokens.

use std::net::IpAddr;

use fl_compress::Digest;
use fl_proto::{ClientId, Fingerprint, Role, Secret};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::clock::Millis;
use crate::registry::NamePattern;

/// Most devices that one token admits. A larger fleet takes several lines, and who reads one gets no more.
pub(crate) const MAX_USES: u32 = 1_000;
/// Most tokens that are stored: a line for each device of the largest federation that one server serves.
pub(crate) const MAX_TOKENS: usize = 100_000;

/// A token as it is stored. The secret itself is only in the enrollment line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// The digest of the secret, [`Secret::digest`].
    #[serde(with = "text")]
    pub(crate) secret: Digest,
    pub(crate) names: NamePattern,
    pub(crate) role: Role,
    /// Devices that it admits.
    pub(crate) uses: u32,
    pub(crate) created: Millis,
    pub(crate) expires: Millis,
    /// Validity of the certificates, in milliseconds.
    pub(crate) lifetime: Millis,
    /// Whether an operator approves each request.
    pub(crate) approve: bool,
    /// Whether a name that is enrolled already gets another certificate.
    pub(crate) again: bool,
    pub(crate) revoked: Option<Millis>,
    /// The devices that used it, in order: entries of their own, so that a use does not write those before.
    #[serde(skip)]
    pub(crate) taken: Vec<Use>,
    /// The number of the next name to try, of a pattern: most of those before are taken.
    #[serde(skip)]
    pub(crate) next: u32,
}

/// One use of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    /// Digest of the device's public key.
    #[serde(with = "text")]
    pub(crate) key: Fingerprint,
    #[serde(with = "text")]
    pub(crate) name: ClientId,
    pub(crate) at: Millis,
    pub(crate) address: IpAddr,
    pub(crate) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    Held,
    Approved,
    Denied,
    Issued,
}

/// Why a token admits no further device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenEnd {
    Revoked(Millis),
    Expired(Millis),
    Used,
}

impl Token {
    /// The number of a token, which operators use: the first bytes of its digest.
    pub(crate) fn id(secret: &Digest) -> String {
        secret.to_string().chars().take(8).collect()
    }

    pub(crate) fn is_of(&self, secret: &Secret) -> bool {
        self.secret.0.ct_eq(&secret.digest().0).into()
    }

    /// Whether it was revoked or has expired: it answers no device, whatever it did before.
    pub(crate) fn has_ended(&self, now: Millis) -> bool {
        self.revoked.is_some() || now >= self.expires
    }

    /// Whether it was opened to enroll a device under a name that was revoked before.
    pub(crate) fn admits_revoked(&self, at: Millis) -> bool {
        self.again && self.created >= at
    }

    /// Whether it admits a further device.
    pub(crate) fn closed(&self, now: Millis) -> Option<TokenEnd> {
        match self.revoked {
            Some(at) => Some(TokenEnd::Revoked(at)),
            None if now >= self.expires => Some(TokenEnd::Expired(self.expires)),
            None if self.taken.len() >= self.uses as usize => Some(TokenEnd::Used),
            None => None,
        }
    }

    /// Whether a device may still call because of it: a further one, or one that repeats its call because it waits for approval
    /// or did not get the answer. `is_done`: whether a device has used its certificate.
    pub(crate) fn is_open(&self, now: Millis, is_done: impl Fn(&Use) -> bool) -> bool {
        !self.has_ended(now) && (self.taken.len() < self.uses as usize || !self.taken.iter().all(is_done))
    }
}

/// Values as their text.
pub(crate) mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
