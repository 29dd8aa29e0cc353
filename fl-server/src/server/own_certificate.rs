//! Renews the server's certificate while the server runs, and before it serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Issued, Lifetime};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock::{Millis, Wall};
use crate::config::live::LiveSettings;
use crate::identity::{OwnFiles, RenewError, Renewer};
use crate::registry::signer::{SignError, Signer};
use crate::rpc::reload::Reloader;
use crate::server::options::{Enrollment, Identity};
use crate::storage::disk::Disk;

/// How often to look at the clock: it may jump, and it goes on while the machine sleeps.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two renewals, whatever the clock says.
const LEAST_INTERVAL: Duration = Duration::from_secs(60);
/// How often a server without the authority's key warns.
const WARN_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Keeps the server's certificate valid.
#[derive(Debug, Clone)]
pub(super) struct OwnCertificate {
    settings: watch::Receiver<Arc<LiveSettings>>,
    /// The authority's key.
    key: PathBuf,
    /// Validity of a new certificate.
    lifetime: Millis,
    disk: Disk,
    clock: Wall,
}

impl OwnCertificate {
    pub(super) fn new(
        identity: &Identity,
        enrollment: &Enrollment,
        settings: watch::Receiver<Arc<LiveSettings>>,
        clock: Wall,
    ) -> Self {
        Self {
            settings,
            key: enrollment.authority_key.clone(),
            lifetime: u64::try_from(identity.lifetime.as_millis()).unwrap_or(u64::MAX),
            disk: Disk::new(identity.fault.clone()),
            clock,
        }
    }

    /// What renews the pair at the paths of this moment, and whether the admin page uses it too. `None` if the pair is no files.
    fn renewer(&self) -> Option<(Renewer, bool)> {
        let settings = self.settings.borrow();
        let own = settings.own.as_ref()?;
        let renewer = Renewer {
            files: OwnFiles {
                certificate: own.certificate.clone(),
                key: own.key.clone(),
            },
            signer: Signer {
                authority: settings.authority.clone(),
                key: self.key.clone(),
            },
            lifetime: self.lifetime,
            disk: self.disk.clone(),
        };
        Some((renewer, own.page))
    }

    /// Finishes a renewal that was interrupted. What cannot be finished stays as it is, and is read as well.
    pub(super) async fn settle(&self) {
        let Some((renewer, _)) = self.renewer() else { return };
        let settled = tokio::task::spawn_blocking(move || renewer.files.settle(&renewer.disk)).await;
        if let Ok(Err(error)) = settled {
            tracing::warn!(%error, "the server's new certificate and key stay beside the old ones");
        }
    }

    /// Renews the certificate at the times at which that is due, until the future is dropped. `wait`: what the first look returned.
    pub(super) async fn keep(self, reloader: Arc<Reloader>, wait: Duration) {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = Instant::now();
        let (mut not_before, mut warned) = (began + wait, (!wait.is_zero()).then_some(began));
        loop {
            poll.tick().await;
            let now = Instant::now();
            if now >= not_before {
                not_before = now + self.look(&reloader, &mut warned).await;
            }
        }
    }

    /// Renews the certificate if that is due. Returns how long to wait before the next look.
    pub(super) async fn look(&self, reloader: &Arc<Reloader>, warned: &mut Option<Instant>) -> Duration {
        let present = Arc::clone(&reloader.certificates().borrow());
        let at = (self.clock)();
        let now = moment(at);
        let Ok(lifetime) = Lifetime::of_pem(&present.own.certificate) else {
            return LEAST_INTERVAL;
        };
        if !lifetime.is_due(now) {
            return Duration::ZERO;
        }
        let Some((renewer, page)) = self.renewer() else {
            return LEAST_INTERVAL;
        };
        let (file, shared) = (renewer.files.certificate.clone(), Arc::clone(reloader));
        let renewed =
            tokio::task::spawn_blocking(move || shared.renew(page, |present: &Issued| renewer.renew(present, at)));
        match renewed.await {
            Ok(Ok(())) => {
                renewed_to(reloader, &file);
                LEAST_INTERVAL
            }
            Ok(Err(error)) => {
                let wait = lifetime.retry(now).max(LEAST_INTERVAL);
                let is_due = warned.is_none_or(|at: Instant| at.elapsed() >= WARN_INTERVAL);
                if is_due || !matches!(error, RenewError::Sign(SignError::NoKey(_))) {
                    *warned = Some(Instant::now());
                    failed(&error, &file, &lifetime, now, wait);
                }
                wait
            }
            // A panic is in the log already.
            Err(_) => LEAST_INTERVAL,
        }
    }
}

fn renewed_to(reloader: &Reloader, file: &Path) {
    let ends = Lifetime::of_pem(&reloader.certificates().borrow().own.certificate);
    let ends = ends.map_or_else(|_| String::new(), |lifetime| lifetime.expires.date().to_string());
    let file = file.display();
    tracing::info!(%file, %ends, "the server's certificate and key were renewed; new connections use them");
}

fn failed(error: &RenewError, file: &Path, lifetime: &Lifetime, now: OffsetDateTime, wait: Duration) {
    let (file, ends) = (file.display(), lifetime.expires.date());
    let state = match lifetime.expires <= now {
        true => "has expired: no client accepts this server",
        false => "stays in use until it expires",
    };
    match error {
        RenewError::Sign(SignError::NoKey(_)) => tracing::warn!(
            %file, %ends,
            "the server's certificate {state}, and the authority's key is not here to renew it: {}",
            crate::identity::Ownership::Person.todo()
        ),
        _ => {
            tracing::error!(%file, %ends, ?wait, "the server's certificate was not renewed and {state}; the next try follows: {error}")
        }
    }
}

fn moment(now: Millis) -> OffsetDateTime {
    let seconds = i64::try_from(now / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use fl_proto::Authority;

    use super::*;
    use crate::config::live::OwnPaths;
    use crate::config::server::Tuning;

    const NOW: i64 = 1_800_000_000;
    const DAY: u64 = 24 * 3_600_000;

    /// A federation in a folder whose server has a certificate of 90 days, and what renews it.
    fn found(clock: Wall) -> (tempfile::TempDir, OwnCertificate, Arc<Reloader>) {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::from_unix_timestamp(NOW).unwrap();
        let (authority, root) = Authority::create("fed", now, time::Duration::days(3650)).unwrap();
        let own = authority.issue_server(now, time::Duration::days(90)).unwrap();
        let identity = Identity::new(dir.path());
        let OwnPaths { certificate, key, .. } = &identity.paths;
        let enrollment = Enrollment::new(dir.path());
        for (path, text) in [
            (&enrollment.authority, &root.certificate),
            (&enrollment.authority_key, &root.key),
            (certificate, &own.certificate),
            (key, &own.key),
        ] {
            std::fs::write(path, text).unwrap();
        }
        let settings = LiveSettings {
            tuning: Tuning::default(),
            server: String::new(),
            lifetime: Duration::ZERO,
            authority: enrollment.authority.clone(),
            own: Some(identity.paths.clone()),
            costs: None,
            token: None,
        };
        let reloader = Arc::new(Reloader::new(None, &root.certificate, &own, settings).unwrap());
        let own = OwnCertificate::new(&identity, &enrollment, reloader.settings(), clock);
        (dir, own, reloader)
    }

    fn present(reloader: &Reloader) -> Issued {
        reloader.certificates().borrow().own.clone()
    }

    #[tokio::test]
    async fn a_certificate_is_renewed_when_it_is_due_and_not_by_a_clock_that_is_wrong() {
        static DAYS: AtomicU64 = AtomicU64::new(0);
        let (_dir, own, reloader) = found(|| NOW as Millis * 1000 + DAYS.load(Ordering::Relaxed) * DAY);
        let look = async |days| {
            DAYS.store(days, Ordering::Relaxed);
            own.look(&reloader, &mut None).await
        };
        let first = present(&reloader);
        assert_eq!((look(59).await, present(&reloader)), (Duration::ZERO, first.clone()));
        assert_eq!(look(60).await, LEAST_INTERVAL);
        let second = present(&reloader);
        assert!(second != first);
        assert_eq!((look(61).await, present(&reloader)), (Duration::ZERO, second.clone()));
        // After the end of the authority.
        assert!(look(4_000).await >= LEAST_INTERVAL && present(&reloader) == second);
        // Without the key, the next look is at a tenth of the time that is left, at most in an hour.
        std::fs::remove_file(&own.key).unwrap();
        assert_eq!(
            (look(130).await, present(&reloader)),
            (Duration::from_secs(3600), second.clone())
        );
        assert_eq!((look(200).await, present(&reloader)), (LEAST_INTERVAL, second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_all_the_time_renews_once_a_minute_at_most() {
        static LOOKS: AtomicU64 = AtomicU64::new(0);
        // To and fro by 100 days, at each look.
        let (_dir, own, reloader) = found(|| {
            let far = LOOKS.fetch_add(1, Ordering::Relaxed) % 2;
            NOW as Millis * 1000 + far * 100 * DAY
        });
        let mut renewed = reloader.certificates();
        let counting = tokio::spawn(async move {
            let mut count = 0;
            while renewed.changed().await.is_ok() {
                count += 1;
            }
            count
        });
        let minutes = 5;
        let keeping = own.keep(Arc::clone(&reloader), Duration::ZERO);
        let ended = tokio::time::timeout(Duration::from_secs(minutes * 60), keeping).await;
        assert!(ended.is_err(), "it is kept as long as the server runs");
        drop(reloader);
        let count = counting.await.unwrap();
        assert!(
            (2..=minutes + 1).contains(&count),
            "{count} renewals in {minutes} minutes"
        );
    }
}
