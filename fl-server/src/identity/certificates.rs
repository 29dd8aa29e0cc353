//! The certificates of a running server, and which of them need attention.

use fl_proto::{Fingerprint, Issued, Lifetime, TlsError, certificates_of, issuer_of};
use time::{Duration, OffsetDateTime};

/// The certificates in use, PEM.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    /// The authorities'.
    pub(crate) authority: String,
    /// The same, DER.
    pub(crate) authorities: Vec<Vec<u8>>,
    pub(crate) own: Issued,
    /// The admin page's; `None`: those that it was started with.
    pub(crate) page: Option<Issued>,
}

impl Certificates {
    pub(crate) fn new(authority: String, own: Issued, page: Option<Issued>) -> Result<Self, TlsError> {
        let authorities = certificates_of(&authority)?;
        Ok(Self {
            authority,
            authorities,
            own,
            page,
        })
    }

    /// Whether certificates of the authority with this fingerprint count.
    pub(crate) fn trusts(&self, issuer: &Fingerprint) -> bool {
        self.authorities.iter().any(|der| Fingerprint::of(der) == *issuer)
    }

    pub(crate) fn issuer(&self) -> Option<Fingerprint> {
        let issuer = issuer_of(&self.own.certificate, &self.authorities);
        issuer.ok().map(Fingerprint::of)
    }

    /// Lifetimes of the authority's certificate and the server's; unreadable ones are left out.
    pub(crate) fn lifetimes(&self) -> Vec<(Kind, Lifetime)> {
        [
            (Kind::Authority, &self.authority),
            (Kind::Server, &self.own.certificate),
        ]
        .into_iter()
        .filter_map(|(kind, pem)| Some((kind, Lifetime::of_pem(pem).ok()?)))
        .collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Authority,
    Server,
    Client,
}

impl Kind {
    /// The name in live.json and in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// An authority is rotated this long before its end: a rotation takes as long as clients take to renew.
pub(crate) const AUTHORITY_SOON: Duration = Duration::days(60);

/// When a certificate is to be replaced: an authority's 60 days before its end, another one at two thirds of its lifetime.
pub(crate) fn renewal(kind: Kind, lifetime: &Lifetime) -> OffsetDateTime {
    match kind {
        Kind::Authority => lifetime.expires.saturating_sub(AUTHORITY_SOON),
        Kind::Server | Kind::Client => lifetime.renewal(),
    }
}

/// Whether a certificate should have been replaced by now.
pub(crate) fn ends_soon(kind: Kind, lifetime: &Lifetime, now: OffsetDateTime) -> bool {
    now >= renewal(kind, lifetime) || lifetime.is_early(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_ends_soon_within_sixty_days_and_others_when_they_should_have_been_renewed() {
        let at = |day: i64| OffsetDateTime::from_unix_timestamp(day * 86_400).unwrap();
        let soon = |kind, days, day| {
            let lifetime = Lifetime {
                issued: at(0),
                expires: at(days),
            };
            ends_soon(kind, &lifetime, at(day))
        };
        assert!(!soon(Kind::Authority, 3650, 3589) && soon(Kind::Authority, 3650, 3590));
        for kind in [Kind::Server, Kind::Client] {
            assert!(!soon(kind, 30, 19) && soon(kind, 30, 20), "{kind:?}");
        }
    }
}
