//! The certificate of a caller.

use fl_proto::{ClientId, Fingerprint, Lifetime, Role, TlsError, certificate_pem, issuer_of, peer_name, peer_role};

use crate::clock::Millis;

/// What the verified certificate of a connection says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) client: ClientId,
    pub(crate) role: Role,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) lifetime: Lifetime,
    /// Fingerprint of the authority to which it leads.
    pub(crate) issuer: Fingerprint,
}

impl Credential {
    /// Reads the first of these certificates, DER; the others lead to one of `authorities`.
    ///
    /// # Errors
    /// If it names no client, has an unknown role, or leads to none of them.
    pub(crate) fn of(chain: &[impl AsRef<[u8]>], authorities: &[Vec<u8>]) -> Result<Self, TlsError> {
        let certificate = chain.first().map_or(&[][..], AsRef::as_ref);
        let pem: String = chain.iter().map(|der| certificate_pem(der.as_ref())).collect();
        Ok(Self {
            client: peer_name(certificate)?,
            role: peer_role(certificate)?,
            fingerprint: Fingerprint::of(certificate),
            lifetime: Lifetime::of(certificate)?,
            issuer: Fingerprint::of(issuer_of(&pem, authorities)?),
        })
    }

    /// When it was issued: a whole second.
    pub(crate) fn issued(&self) -> Millis {
        millis(self.lifetime.issued.unix_timestamp())
    }

    pub(crate) fn expires(&self) -> Millis {
        millis(self.lifetime.expires.unix_timestamp())
    }
}

fn millis(seconds: i64) -> Millis {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use fl_proto::{Authority, certificates_of};
    use time::{Duration, OffsetDateTime};

    use super::*;

    #[test]
    fn a_certificate_of_an_authority_between_leads_to_the_one_that_is_trusted() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (root, pem) = Authority::create("fed", now, Duration::days(9)).unwrap();
        let between = root.successor("ward", now, Duration::days(9)).unwrap();
        let by = Authority::from_pem(&between).unwrap();
        let own = by
            .issue_client(&"anna".parse().unwrap(), now, Duration::days(2))
            .unwrap();
        let der = |pem: &str| certificates_of(pem).unwrap().remove(0);
        let (own, trusted) = (der(&own.certificate), [der(&pem.certificate)]);
        let shown = Credential::of(&[own.clone(), der(&between.certificate)], &trusted).unwrap();
        assert_eq!(
            (shown.client.as_str(), shown.issuer),
            ("anna", Fingerprint::of(&trusted[0]))
        );
        let at = 1_800_000_000_000;
        assert_eq!((shown.issued(), shown.expires()), (at, at + 2 * 24 * 3_600_000));
        assert!(Credential::of(&[own], &trusted).is_err(), "the link is missing");
        assert!(Credential::of(&[] as &[Vec<u8>], &trusted).is_err());
    }
}
