//! How long a certificate is valid, and when its owner renews it.

use std::time::Duration;

use time::OffsetDateTime;

use crate::tls::certificate::{CLOCK_SKEW, TlsError, certificates_of, peer_lifetime};

// Shortest and longest wait before another try to renew.
const RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// When a certificate was issued and when it expires. It is renewed at two thirds of the time between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// A day after the beginning of its validity, which leaves room for slow clocks.
    pub issued: OffsetDateTime,
    /// From then on, no peer accepts the certificate.
    pub expires: OffsetDateTime,
}

impl Lifetime {
    /// The lifetime of the first certificate of a PEM text.
    ///
    /// # Errors
    /// `Pem` or `NotACertificate`.
    pub fn of_pem(pem: &str) -> Result<Self, TlsError> {
        let all = certificates_of(pem)?;
        Self::of(all.first().map_or(&[], Vec::as_slice))
    }

    /// The lifetime of a DER certificate.
    ///
    /// # Errors
    /// `NotACertificate`.
    pub fn of(der: &[u8]) -> Result<Self, TlsError> {
        let (issued, expires) = peer_lifetime(der)?;
        Ok(Self { issued, expires })
    }

    /// When to renew: at two thirds of the lifetime.
    pub fn renewal(&self) -> OffsetDateTime {
        self.issued + (self.expires - self.issued) * 2 / 3
    }

    /// Whether the certificate is to be renewed: its renewal is due, or it is not valid yet because the clock of its issuer was
    /// wrong.
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        now >= self.renewal() || self.is_early(now)
    }

    /// Whether the certificate is not valid yet.
    pub fn is_early(&self, now: OffsetDateTime) -> bool {
        now < self.issued.saturating_sub(CLOCK_SKEW)
    }

    /// How long to wait after a renewal that failed: a tenth of the time that is left, between 10 seconds and an hour.
    pub fn retry(&self, now: OffsetDateTime) -> Duration {
        let left = Duration::try_from(self.expires - now).unwrap_or(Duration::ZERO);
        (left / 10).clamp(RETRY.0, RETRY.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Authority;

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_and_where_it_is_not_valid_yet() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let days = time::Duration::days;
        let (authority, _) = Authority::create("fed", now, days(99)).unwrap();
        let own = authority.issue_server(now, days(90)).unwrap();
        let lifetime = Lifetime::of_pem(&own.certificate).unwrap();
        assert_eq!((lifetime.issued, lifetime.expires), (now, now + days(90)));
        assert_eq!(lifetime.renewal(), now + days(60));
        for (at, due) in [
            (-2, true),
            (-1, false),
            (0, false),
            (59, false),
            (60, true),
            (100, true),
        ] {
            assert_eq!(lifetime.is_due(now + days(at)), due, "day {at}");
        }
        assert!(Lifetime::of_pem("").is_err() && Lifetime::of(b"x").is_err());
    }

    #[test]
    fn a_failed_renewal_is_tried_again_ever_sooner_within_bounds() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let lifetime = Lifetime {
            issued: now,
            expires: now + time::Duration::days(30),
        };
        assert_eq!(lifetime.retry(now), RETRY.1);
        assert_eq!(
            lifetime.retry(lifetime.expires - time::Duration::minutes(30)),
            Duration::from_secs(180)
        );
        assert_eq!(lifetime.retry(lifetime.expires + time::Duration::days(9)), RETRY.0);
    }
}
