//! Pauses a training while the client is not available, and stops it when a longer pause would cost the round.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::conditions::Monitor;
use crate::learner::Progress;

/// Time in which a learner must have noticed that it is paused. Longer than most steps; a trainer never notices.
const NOTICE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub(super) struct PauseLimits {
    /// Longest pause, `when.max_pause`.
    pub(super) max: Duration,
    pub(super) deadline: Option<Instant>,
    /// How long the last training took, without pauses.
    pub(super) last: Option<Duration>,
}

impl PauseLimits {
    /// How long a pause from `now` on may last, so that another client can still train before the deadline. `own`: how long this
    /// training takes, if some of it is done.
    fn longest(&self, now: Instant, own: Option<Duration>) -> Duration {
        let Some(deadline) = self.deadline else { return self.max };
        let left = deadline.saturating_duration_since(now);
        // A quarter more than this client needs, for its model, its upload and a slower device.
        let need = self.last.or(own).map_or(left / 2, |full| full + full / 4);
        self.max.min(left.saturating_sub(need))
    }
}

/// Pauses and resumes the learner of `progress` as `monitor` says. Ends when the pause takes too long, or the learner does not
/// take it: the learner is then stopped, and `gave_up` has the reason.
pub(super) async fn pause_and_resume(
    mut monitor: Monitor,
    progress: Arc<Progress>,
    limits: PauseLimits,
    gave_up: Arc<OnceLock<String>>,
) {
    let begin = Instant::now();
    loop {
        monitor.unavailable().await;
        progress.pause();
        let now = Instant::now();
        let worked = now.duration_since(begin).saturating_sub(progress.paused());
        let longest = limits.longest(now, estimated(worked, progress.read()));
        let why = monitor.decision().why().unwrap_or_default();
        tracing::info!(why, longest_s = longest.as_secs(), "the training pauses");
        tokio::select! {
            () = monitor.available() => {
                progress.resume();
                tracing::info!("the training resumes");
                continue;
            }
            () = tokio::time::sleep(longest) => {}
            () = unnoticed(&progress) => {}
        }
        let _ = gave_up.set(why);
        progress.stop();
        return;
    }
}

async fn unnoticed(progress: &Progress) {
    tokio::time::sleep(NOTICE).await;
    if progress.is_resting() {
        std::future::pending::<()>().await;
    }
}

/// How long all steps take, if some of them took `worked`.
fn estimated(worked: Duration, (done, total): (u64, u64)) -> Option<Duration> {
    (done > 0).then(|| worked.mul_f64(total.max(done) as f64 / done as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pause_leaves_another_client_time_to_train() {
        let now = Instant::now();
        let limits = |left: Option<u32>, last: Option<u32>| PauseLimits {
            max: 60 * SECOND,
            deadline: left.map(|left| now + left * SECOND),
            last: last.map(|last| last * SECOND),
        };
        for (left, last, own, longest) in [
            (None, None, None, 60),
            (Some(600), Some(100), None, 60),
            (Some(150), Some(100), None, 25),
            (Some(150), None, Some(100), 25),
            (Some(150), Some(40), Some(1000), 60),
            (Some(100), Some(100), None, 0),
            (Some(30), None, None, 15),
            (Some(0), None, None, 0),
        ] {
            let own = own.map(|own: u32| own * SECOND);
            assert_eq!(
                limits(left, last).longest(now, own),
                longest * SECOND,
                "{left:?} {last:?} {own:?}"
            );
        }
    }

    #[test]
    fn the_time_of_all_steps_follows_from_those_done() {
        assert_eq!(estimated(10 * SECOND, (0, 40)), None);
        assert_eq!(estimated(10 * SECOND, (10, 40)), Some(40 * SECOND));
        assert_eq!(estimated(10 * SECOND, (10, 0)), Some(10 * SECOND));
    }
}
