//! The answers of enrollment and renewal, checked.

use crate::error::ProtocolError;
use crate::wire;

/// A certificate for a key of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCertificate {
    /// X.509, DER.
    pub certificate: Vec<u8>,
    /// The federation's authorities, X.509, DER: at least one, the one that signed first.
    pub authorities: Vec<Vec<u8>>,
}

// Longest certificate in bytes: one with a P-256 key has about 400.
const MAX_CERTIFICATE: usize = 8 * 1024;
// Authorities that a federation trusts at once, at most: the one in use, and those before or after a rotation.
const MAX_AUTHORITIES: usize = 8;

impl From<SignedCertificate> for wire::Certificate {
    fn from(signed: SignedCertificate) -> Self {
        Self {
            certificate: signed.certificate.into(),
            authorities: signed.authorities.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<wire::Certificate> for SignedCertificate {
    type Error = ProtocolError;

    fn try_from(message: wire::Certificate) -> Result<Self, ProtocolError> {
        let all = std::iter::once(&message.certificate).chain(&message.authorities);
        if all.into_iter().any(|der| der.is_empty() || der.len() > MAX_CERTIFICATE) {
            return Err(ProtocolError::invalid("certificate", "must have 1 to 8,192 bytes"));
        }
        if !(1..=MAX_AUTHORITIES).contains(&message.authorities.len()) {
            return Err(ProtocolError::invalid("authorities", "must be 1 to 8 certificates"));
        }
        Ok(Self {
            certificate: message.certificate.to_vec(),
            authorities: message.authorities.iter().map(|der| der.to_vec()).collect(),
        })
    }
}

/// The answer to an enrollment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enrolled {
    /// The certificate, and `host:port` of the server; `:port` for the host of the enrollment line.
    Issued {
        /// The certificate.
        certificate: SignedCertificate,
        /// Where the server listens.
        server: String,
    },
    /// An operator must approve the request.
    Held {
        /// Six words that the operator compares.
        words: String,
        /// When to ask again.
        retry: std::time::Duration,
    },
}

// Shortest and longest wait that a server may ask for.
const RETRY_MS: std::ops::RangeInclusive<u32> = 100..=60_000;

impl From<Enrolled> for wire::EnrollReply {
    fn from(enrolled: Enrolled) -> Self {
        use wire::enroll_reply::Outcome;
        let (outcome, server) = match enrolled {
            Enrolled::Issued { certificate, server } => (Outcome::Issued(certificate.into()), server),
            Enrolled::Held { words, retry } => {
                let retry_ms = u32::try_from(retry.as_millis()).unwrap_or(u32::MAX);
                (Outcome::Held(wire::Held { words, retry_ms }), String::new())
            }
        };
        Self {
            outcome: Some(outcome),
            server,
        }
    }
}

impl TryFrom<wire::EnrollReply> for Enrolled {
    type Error = ProtocolError;

    fn try_from(reply: wire::EnrollReply) -> Result<Self, ProtocolError> {
        use wire::enroll_reply::Outcome;
        match reply.outcome.ok_or(ProtocolError::Missing("outcome"))? {
            Outcome::Issued(certificate) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
                if reply.server.len() > 300 || !reply.server.contains(':') || !reply.server.chars().all(plain) {
                    return Err(ProtocolError::invalid("server", "must be host:port"));
                }
                Ok(Self::Issued {
                    certificate: certificate.try_into()?,
                    server: reply.server,
                })
            }
            Outcome::Held(held) => {
                if held.words.len() > 200 || !held.words.chars().all(|c| c.is_ascii_lowercase() || c == ' ') {
                    return Err(ProtocolError::invalid("words", "must be six words"));
                }
                let retry = held.retry_ms.clamp(*RETRY_MS.start(), *RETRY_MS.end());
                Ok(Self::Held {
                    words: held.words,
                    retry: std::time::Duration::from_millis(retry.into()),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written_and_bad_ones_are_refused() {
        let certificate = SignedCertificate {
            certificate: vec![1; 400],
            authorities: vec![vec![2; 400]],
        };
        let issued = Enrolled::Issued {
            certificate: certificate.clone(),
            server: ":7070".to_owned(),
        };
        let held = Enrolled::Held {
            words: "acorn badge".to_owned(),
            retry: std::time::Duration::from_secs(2),
        };
        for reply in [issued, held] {
            assert_eq!(Enrolled::try_from(wire::EnrollReply::from(reply.clone())), Ok(reply));
        }
        assert!(Enrolled::try_from(wire::EnrollReply::default()).is_err());
        for (count, len) in [(0, 400), (9, 400), (1, 9000), (1, 0)] {
            let mut wrong = certificate.clone();
            wrong.authorities = vec![vec![2; len]; count];
            assert!(
                SignedCertificate::try_from(wire::Certificate::from(wrong)).is_err(),
                "{count} of {len}"
            );
        }
        let wrong = Enrolled::Issued {
            certificate,
            server: "x\"\ny:7".to_owned(),
        };
        assert!(
            Enrolled::try_from(wire::EnrollReply::from(wrong)).is_err(),
            "it becomes a line of a file"
        );
    }
}
