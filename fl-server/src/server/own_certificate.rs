//! Renews the server's certificate while the server runs, and before it serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Issued, Lifetime};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock::{Millis, Wall, moment};
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
/// Further than this in one look, the wall clock was set. Corrections of a running clock are smaller.
const JUMP: Millis = 10_000;
/// How often a server without the authority's key warns.
const WARN_INTERVAL: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone)]
pub(super) struct OwnCertificate {
    settings: watch::Receiver<Arc<LiveSettings>>,
    key: PathBuf,
    lifetime: Millis,
    steady: Duration,
    disk: Disk,
    clock: Wall,
}

/// Since when the wall clock has gone as fast as the monotonic one, and the two at the last look.
#[derive(Debug)]
struct Steady {
    since: Instant,
    last: (Instant, Millis),
}

impl Steady {
    fn new(now: Instant, at: Millis) -> Self {
        Self {
            since: now,
            last: (now, at),
        }
    }

    /// For how long the wall clock has not jumped.
    fn look(&mut self, now: Instant, at: Millis) -> Duration {
        let passed = u64::try_from((now - self.last.0).as_millis()).unwrap_or(u64::MAX);
        if at.abs_diff(self.last.1.saturating_add(passed)) > JUMP {
            self.since = now;
        }
        self.last = (now, at);
        now - self.since
    }
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
            steady: identity.steady,
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
        let mut not_before = began + wait;
        let mut warned = (!wait.is_zero()).then_some(began);
        let mut steady = Steady::new(began, (self.clock)());
        loop {
            poll.tick().await;
            let now = Instant::now();
            let at = (self.clock)();
            let is_steady = steady.look(now, at) >= self.steady;
            if now >= not_before {
                not_before = now + self.look(&reloader, &mut warned, is_steady).await;
            }
        }
    }

    /// Renews the certificate if that is due and the clock `is_steady`; one of the future at once, because a wrong clock issued it and
    /// nobody accepts it now. Returns how long to wait before the next look.
    pub(super) async fn look(
        &self,
        reloader: &Arc<Reloader>,
        warned: &mut Option<Instant>,
        is_steady: bool,
    ) -> Duration {
        let present = Arc::clone(&reloader.certificates().borrow());
        let at = (self.clock)();
        let now = moment(at);
        let Ok(lifetime) = Lifetime::of_pem(&present.own.certificate) else {
            return LEAST_INTERVAL;
        };
        if !lifetime.is_due(now) || !(is_steady || lifetime.is_early(now)) {
            return Duration::ZERO;
        }
        let Some((renewer, page)) = self.renewer() else {
            return LEAST_INTERVAL;
        };
        let file = renewer.files.certificate.clone();
        let shared = Arc::clone(reloader);
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
    let file = file.display();
    let ends = lifetime.expires.date();
    let state = if lifetime.expires <= now {
        "has expired: no client accepts this server"
    } else {
        "stays in use until it expires"
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
            own.look(&reloader, &mut None, true).await
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

    /// Renewals by `own` while so much time passes, from now on.
    async fn renewals(own: &OwnCertificate, reloader: &Arc<Reloader>, time: Duration) -> u64 {
        let mut renewed = reloader.certificates();
        renewed.mark_unchanged();
        let counted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&counted);
        let counting = tokio::spawn(async move {
            while renewed.changed().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let keeping = own.clone().keep(Arc::clone(reloader), Duration::ZERO);
        let ended = tokio::time::timeout(time, keeping).await;
        assert!(ended.is_err(), "it is kept as long as the server runs");
        tokio::task::yield_now().await;
        counting.abort();
        counted.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_wrong_for_seconds_or_jumps_all_the_time_renews_nothing() {
        static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        static AHEAD: AtomicU64 = AtomicU64::new(0);
        static EVERY: AtomicU64 = AtomicU64::new(0);
        let (_dir, own, reloader) = found(|| {
            let passed = BEGAN.get_or_init(Instant::now).elapsed().as_millis() as Millis;
            let (ahead, every) = (AHEAD.load(Ordering::Relaxed), EVERY.load(Ordering::Relaxed));
            // With `every`, ahead for three seconds of so many.
            let is_ahead = every == 0 || passed / 1000 % every < 3;
            NOW as Millis * 1000 + passed + if is_ahead { ahead * DAY } else { 0 }
        });
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        AHEAD.store(4_000, Ordering::Relaxed);
        for every in [6, 60, 170] {
            EVERY.store(every, Ordering::Relaxed);
            assert_eq!(renewals(&own, &reloader, minutes(30)).await, 0, "every {every} s");
        }
        // Ahead for good, by less than the authority's lifetime.
        AHEAD.store(70, Ordering::Relaxed);
        EVERY.store(0, Ordering::Relaxed);
        assert_eq!(renewals(&own, &reloader, minutes(2)).await, 0);
        assert_eq!(renewals(&own, &reloader, minutes(10)).await, 1);
        // The clock was wrong and is set back: the certificate of the future is replaced at once, and only once.
        AHEAD.store(0, Ordering::Relaxed);
        assert_eq!(renewals(&own, &reloader, Duration::from_secs(3)).await, 1);
        assert_eq!(renewals(&own, &reloader, minutes(30)).await, 0);
    }
}
