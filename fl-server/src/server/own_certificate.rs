//! Renews the server's certificate while the server runs, and before it serves.

use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Issued, Lifetime};
use time::OffsetDateTime;
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock::{Millis, Wall};
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
    renewer: Renewer,
    page: bool,
    clock: Wall,
}

impl OwnCertificate {
    pub(super) fn new(identity: &Identity, enrollment: &Enrollment, clock: Wall) -> Self {
        Self {
            renewer: Renewer {
                files: OwnFiles {
                    certificate: identity.certificate.clone(),
                    key: identity.key.clone(),
                },
                signer: Signer {
                    authority: enrollment.authority.clone(),
                    key: enrollment.authority_key.clone(),
                },
                lifetime: u64::try_from(identity.lifetime.as_millis()).unwrap_or(u64::MAX),
                disk: Disk::new(identity.fault.clone()),
            },
            page: identity.page,
            clock,
        }
    }

    /// Finishes a renewal that was interrupted. What cannot be finished stays as it is, and is read as well.
    pub(super) async fn settle(&self) {
        let renewer = self.renewer.clone();
        let settled = tokio::task::spawn_blocking(move || renewer.files.settle(&renewer.disk)).await;
        if let Ok(Err(error)) = settled {
            tracing::warn!(%error, "the server's new certificate and key stay beside the old ones");
        }
    }

    /// Renews the certificate at the times at which that is due, until the future is dropped. The first time is now.
    pub(super) async fn keep(self, reloader: Arc<Reloader>) {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut not_before, mut warned) = (Instant::now(), None);
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
        let (own, shared) = (self.clone(), Arc::clone(reloader));
        let renewed = tokio::task::spawn_blocking(move || {
            shared.renew(own.page, |present: &Issued| own.renewer.renew(present, at))
        });
        match renewed.await {
            Ok(Ok(())) => {
                self.renewed(reloader);
                LEAST_INTERVAL
            }
            Ok(Err(error)) => {
                let wait = lifetime.retry(now).max(LEAST_INTERVAL);
                let is_due = warned.is_none_or(|at: Instant| at.elapsed() >= WARN_INTERVAL);
                if is_due || !matches!(error, RenewError::Sign(SignError::NoKey(_))) {
                    *warned = Some(Instant::now());
                    self.failed(&error, &lifetime, now, wait);
                }
                wait
            }
            // A panic is in the log already.
            Err(_) => LEAST_INTERVAL,
        }
    }

    fn renewed(&self, reloader: &Reloader) {
        let ends = Lifetime::of_pem(&reloader.certificates().borrow().own.certificate);
        let ends = ends.map_or_else(|_| String::new(), |lifetime| lifetime.expires.date().to_string());
        let file = self.renewer.files.certificate.display();
        tracing::info!(%file, %ends, "the server's certificate and key were renewed; new connections use them");
    }

    fn failed(&self, error: &RenewError, lifetime: &Lifetime, now: OffsetDateTime, wait: Duration) {
        let (file, ends) = (self.renewer.files.certificate.display(), lifetime.expires.date());
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
}

fn moment(now: Millis) -> OffsetDateTime {
    let seconds = i64::try_from(now / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
