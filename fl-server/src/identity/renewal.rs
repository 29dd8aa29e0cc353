//! Renews the server's certificate. Clients trust the authority, so that a new certificate and a new key need no word to them.
//! Why 90 days: docs/decisions/server-certificates-renew-themselves.md.

use std::path::Path;

use fl_proto::{Issued, Lifetime, server_tls};
use time::OffsetDateTime;

use super::files::OwnFiles;
use crate::clock::Millis;
use crate::registry::signer::{SignError, Signer, old_path};
use crate::storage::disk::{Disk, DiskError};

/// Validity of the server's certificate, in days.
pub(crate) const LIFETIME_DAYS: u16 = 90;

/// Longest validity of a server's certificate that `check` finds good, in days.
const LONG_DAYS: i64 = 398;

#[derive(Debug, Clone)]
pub(crate) struct Renewer {
    pub(crate) files: OwnFiles,
    pub(crate) signer: Signer,
    pub(crate) lifetime: Millis,
    pub(crate) disk: Disk,
}

/// Why the server's certificate is not renewed. The old one stays in use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenewError {
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("{0}; the server must be able to write there, or renew it by hand (`fl-server authority renew`)")]
    Disk(#[from] DiskError),
    #[error("the new certificate cannot be used: {0}")]
    Tls(#[from] fl_proto::TlsError),
}

impl Renewer {
    /// Makes a new key and its certificate, and puts them in the place of `present`, which stays in use until both are on disk.
    /// Blocks.
    ///
    /// # Errors
    /// Why not; the files hold a pair.
    pub(crate) fn renew(&self, present: &Issued, now: Millis) -> Result<Issued, RenewError> {
        self.issue(Some(&present.certificate), now)
    }

    /// Makes the pair if both files are missing and the authority's key is here. Returns whether it did. Blocks.
    pub(crate) fn make_if_missing(&self, now: Millis) -> Result<bool, RenewError> {
        self.files.settle(&self.disk)?;
        let is_missing = !self.files.certificate.exists() && !self.files.key.exists();
        if is_missing && self.has_key() {
            self.issue(None, now)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn issue(&self, present: Option<&str>, now: Millis) -> Result<Issued, RenewError> {
        let own = self.signer.issue_server(present, now, self.lifetime)?;
        let authorities: String = self
            .signer
            .authorities()?
            .iter()
            .map(|der| fl_proto::certificate_pem(der))
            .collect();
        server_tls(&authorities, &own)?;
        self.files.replace(&self.disk, &own)?;
        Ok(own)
    }

    /// Whether a key is here that can sign.
    pub(crate) fn has_key(&self) -> bool {
        has_key(&self.signer.key)
    }
}

fn has_key(authority_key: &Path) -> bool {
    authority_key.exists() || old_path(authority_key).exists()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The running server, because the authority's key is here.
    Server,
    /// A person, where the authority's key is.
    Person,
}

impl Ownership {
    /// By whether the authority's key is at this path, or the old one of a rotation beside it.
    pub(crate) fn of(authority_key: &Path) -> Self {
        if has_key(authority_key) {
            Self::Server
        } else {
            Self::Person
        }
    }

    /// What to do about a certificate that was not renewed.
    pub(crate) fn todo(self) -> &'static str {
        match self {
            Self::Server => {
                "a running server renews it by itself and logs why it cannot; `fl-server authority renew` does it now"
            }
            Self::Person => {
                "type `fl-server authority renew` where the authority's key is, copy server.pem and server.key here, and send the \
                 server SIGHUP"
            }
        }
    }
}

/// What is to be said about the server's certificate: the sentence, what to do, and whether clients refuse the server.
pub(crate) fn advice(lifetime: &Lifetime, now: OffsetDateTime, who: Ownership) -> Option<(String, &'static str, bool)> {
    let Lifetime { issued, expires } = lifetime;
    if *expires <= now {
        let text = format!(
            "the server's certificate expired on {}: no client accepts it",
            expires.date()
        );
        return Some((text, who.todo(), true));
    }
    if lifetime.is_early(now) {
        let text = format!(
            "the server's certificate is of {}, which is in the future: no client accepts it, or this machine's clock is wrong",
            issued.date()
        );
        return Some((text, who.todo(), true));
    }
    if lifetime.is_due(now) {
        let text = format!(
            "the server's certificate ends on {} and is to be renewed since {}",
            expires.date(),
            lifetime.renewal().date()
        );
        return Some((text, who.todo(), false));
    }
    let days = (*expires - *issued).whole_days();
    if days > LONG_DAYS && who == Ownership::Server {
        let text = format!("the server's certificate is valid for {days} days: a stolen key is of use for as long");
        let todo = "`fl-server authority renew` makes one of 90 days, which the server renews by itself";
        return Some((text, todo, false));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use fl_proto::Authority;
    use time::Duration;

    use super::*;
    use crate::storage::disk::{Fault, FaultKind};

    const NOW: i64 = 1_800_000_000;
    const DAY: u64 = 24 * 3_600_000;

    struct Federation {
        dir: tempfile::TempDir,
        authority: Authority,
        root: Issued,
        own: Issued,
    }

    impl Federation {
        fn found() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let now = OffsetDateTime::from_unix_timestamp(NOW).unwrap();
            let (authority, root) = Authority::create("fed", now, Duration::days(3650)).unwrap();
            let own = authority.issue_server(now, Duration::days(3650)).unwrap();
            let fed = Self {
                dir,
                authority,
                root,
                own,
            };
            for (name, text) in [
                ("authority.pem", &fed.root.certificate),
                ("authority.key", &fed.root.key),
                ("server.pem", &fed.own.certificate),
                ("server.key", &fed.own.key),
            ] {
                std::fs::write(fed.path(name), text).unwrap();
            }
            fed
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn renewer(&self, disk: Disk) -> Renewer {
            Renewer {
                files: OwnFiles {
                    certificate: self.path("server.pem"),
                    key: self.path("server.key"),
                },
                signer: Signer {
                    authority: self.path("authority.pem"),
                    key: self.path("authority.key"),
                },
                lifetime: u64::from(LIFETIME_DAYS) * DAY,
                disk,
            }
        }

        fn read(&self) -> Issued {
            let files = self.renewer(Disk::default()).files;
            files.read(|path| std::fs::read_to_string(path)).unwrap()
        }
    }

    /// Milliseconds since 1970, so many days after the federation was made.
    fn day(days: i64) -> Millis {
        ((NOW + days * 86_400) * 1000) as Millis
    }

    fn at(days: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(NOW + days * 86_400).unwrap()
    }

    #[test]
    fn a_renewed_certificate_has_a_new_key_and_ninety_days_and_is_on_disk() {
        let fed = Federation::found();
        let renewer = fed.renewer(Disk::default());
        let new = renewer.renew(&fed.own, day(2_500)).unwrap();
        assert!(new.key != fed.own.key && fed.read() == new);
        let lifetime = Lifetime::of_pem(&new.certificate).unwrap();
        assert_eq!((lifetime.issued, lifetime.expires), (at(2_500), at(2_590)));
        assert!(
            fl_proto::issuer_of(
                &new.certificate,
                &fl_proto::certificates_of(&fed.root.certificate).unwrap()
            )
            .is_ok()
        );
    }

    #[test]
    fn a_clock_that_jumps_makes_neither_a_loop_nor_a_certificate_of_the_future() {
        let fed = Federation::found();
        let renewer = fed.renewer(Disk::default());
        let is_due = |own: &Issued, days| Lifetime::of_pem(&own.certificate).unwrap().is_due(at(days));
        let far = renewer.renew(&fed.own, day(3_000)).unwrap();
        assert!(!is_due(&far, 3_000));
        // Set right again: the certificate of the future is of no use.
        assert!(is_due(&far, 10));
        let right = renewer.renew(&far, day(10)).unwrap();
        assert!(!is_due(&right, 10) && fed.read() == right);
        // Times at which there was no authority yet, or no more, and the last day that a certificate can name: the good one stays.
        let last = OffsetDateTime::new_utc(time::Date::MAX, time::Time::MIDNIGHT).unix_timestamp() as Millis * 1000;
        for wrong in [0, day(-2), day(3_650), last, Millis::MAX] {
            let error = renewer.renew(&right, wrong).unwrap_err();
            assert!(error.to_string().contains("set the clock"), "{error}");
        }
        assert!(fed.read() == right);
    }

    #[test]
    fn during_a_rotation_the_old_authority_signs_because_clients_trust_it() {
        let fed = Federation::found();
        let (_, next) = Authority::create("fed", at(0), Duration::days(3650)).unwrap();
        std::fs::write(
            fed.path("authority.pem"),
            fed.root.certificate.clone() + &next.certificate,
        )
        .unwrap();
        std::fs::write(fed.path("authority.key.old"), &fed.root.key).unwrap();
        std::fs::write(fed.path("authority.key"), &next.key).unwrap();
        let new = fed.renewer(Disk::default()).renew(&fed.own, day(1)).unwrap();
        assert!(
            fl_proto::issuer_of(
                &new.certificate,
                &fl_proto::certificates_of(&fed.root.certificate).unwrap()
            )
            .is_ok()
        );
        std::fs::remove_file(fed.path("authority.key.old")).unwrap();
        let error = fed.renewer(Disk::default()).renew(&new, day(2)).unwrap_err();
        assert!(error.to_string().contains("is not the key of"), "{error}");
        assert_eq!(fed.read(), new);
    }

    #[test]
    fn without_the_key_and_with_a_full_disk_the_old_pair_stays() {
        let fed = Federation::found();
        let full = fed.renewer(Disk::new(Some(Arc::new(Fault::new(FaultKind::Full, 1)))));
        let error = full.renew(&fed.own, day(2_500)).unwrap_err();
        assert!(
            error.to_string().contains("authority renew") && full.has_key(),
            "{error}"
        );
        assert_eq!(fed.read(), fed.own);
        std::fs::remove_file(fed.path("authority.key")).unwrap();
        assert!(!full.has_key());
        let error = fed.renewer(Disk::default()).renew(&fed.own, day(2_500)).unwrap_err();
        assert!(matches!(error, RenewError::Sign(SignError::NoKey(_))), "{error}");
        assert_eq!(fed.read(), fed.own);
    }

    #[test]
    fn a_missing_pair_is_made_also_after_a_crash_at_any_point() {
        let points = {
            let fault = Arc::new(Fault::new(FaultKind::Full, u64::MAX));
            let fed = Federation::found();
            std::fs::remove_file(fed.path("server.pem")).unwrap();
            std::fs::remove_file(fed.path("server.key")).unwrap();
            let renewer = fed.renewer(Disk::new(Some(Arc::clone(&fault))));
            assert!(renewer.make_if_missing(day(1)).unwrap() && !renewer.make_if_missing(day(1)).unwrap());
            fault.seen()
        };
        assert!(points > 12, "{points}");
        for at in 1..=points {
            let fed = Federation::found();
            let mut renewer = fed.renewer(Disk::new(Some(Arc::new(Fault::new(FaultKind::Full, at)))));
            renewer.files.certificate = fed.path("more/server.pem");
            renewer.files.key = fed.path("more/server.key");
            renewer.make_if_missing(day(1)).unwrap_err();
            renewer.disk = Disk::default();
            renewer.make_if_missing(day(1)).unwrap();
            let pair = renewer.files.read(|path| std::fs::read_to_string(path)).unwrap();
            assert!(fl_proto::is_pair(&pair), "{at}");
        }
        let fed = Federation::found();
        std::fs::remove_file(fed.path("server.key")).unwrap();
        assert!(
            !fed.renewer(Disk::default()).make_if_missing(day(1)).unwrap(),
            "half a pair is a person's to repair"
        );
    }

    #[test]
    fn what_an_operator_is_told_depends_on_the_time_and_on_where_the_key_is() {
        let fed = Federation::found();
        let short = fed.authority.issue_server(at(0), Duration::days(90)).unwrap();
        let told = |own: &Issued, days, who| advice(&Lifetime::of_pem(&own.certificate).unwrap(), at(days), who);
        assert_eq!(told(&short, 59, Ownership::Server), None);
        for (own, days, who, text, todo, refused) in [
            (
                &short,
                60,
                Ownership::Server,
                "is to be renewed since 2027-03-16",
                "by itself",
                false,
            ),
            (
                &short,
                60,
                Ownership::Person,
                "ends on 2027-04-15",
                "copy server.pem",
                false,
            ),
            (&short, 90, Ownership::Person, "expired on 2027-04-15", "SIGHUP", true),
            (&short, -3, Ownership::Server, "in the future", "by itself", true),
            (
                &fed.own,
                5,
                Ownership::Server,
                "valid for 3650 days",
                "authority renew",
                false,
            ),
        ] {
            let (said, todos, refuses) = told(own, days, who).unwrap();
            assert!(said.contains(text) && todos.contains(todo), "{said} -> {todos}");
            assert_eq!(refuses, refused, "{said}");
        }
        assert_eq!(told(&fed.own, 5, Ownership::Person), None);
    }
}
