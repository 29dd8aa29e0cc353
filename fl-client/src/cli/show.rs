//! Events for a person: lines in the log, and on a terminal a line that moves while something takes long.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fl_cli::log::four_digits;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::{Event, Verdict};
use crate::learner::Progress;

/// A progress bar appears only after this long.
const PROGRESS_DELAY: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);

/// What the client is doing, and how far it is if that is known.
type Doing = Option<(String, Option<Arc<Progress>>)>;

#[derive(Debug)]
pub(super) struct Show {
    doing: watch::Sender<Doing>,
    /// Whether the end of this run is in the log: a client that waits for the next run is told of it at every connection.
    over: AtomicBool,
    /// Why the client is not connected, which is logged once.
    why: Mutex<String>,
}

impl Show {
    /// Starts the moving line, if stderr is a terminal.
    pub(super) fn start(bar: ProgressBar) -> Self {
        let (doing, seen) = watch::channel(None);
        if std::io::stderr().is_terminal() {
            tokio::spawn(draw(bar, seen));
        }
        Self {
            doing,
            over: AtomicBool::new(false),
            why: Mutex::default(),
        }
    }

    /// Whether this is another reason than the one before.
    fn is_new(&self, why: &str) -> bool {
        let mut last = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, why.to_owned()) != why
    }

    pub(super) fn event(&self, event: Event) {
        let doing = match event {
            Event::Connected {
                client,
                run,
                task,
                rounds,
                ..
            } => {
                self.is_new("");
                tracing::info!(%client, %run, task, rounds, "connected");
                None
            }
            Event::Round { round, selected } => {
                self.over.store(false, Ordering::Relaxed);
                tracing::info!(round, selected, "round");
                None
            }
            Event::FetchingBase { held, bytes } => {
                tracing::info!(held, bytes, "fetching the frozen tensors of the model");
                Some((format!("fetching {bytes} bytes of frozen tensors"), None))
            }
            Event::FetchedBase { bytes } => {
                tracing::info!(bytes, "fetched the frozen tensors of the model");
                None
            }
            Event::Fetching { version } => Some((format!("fetching model {version}"), None)),
            Event::Training { round, progress } => Some((format!("round {round}: training"), Some(progress))),
            Event::Encoding { round } => Some((format!("round {round}: compressing"), None)),
            Event::Sending { round, bytes } => Some((format!("round {round}: sending {bytes} bytes"), None)),
            Event::Sent { round, bytes, verdict } => {
                match verdict {
                    Verdict::Accepted => tracing::info!(round, bytes, "update accepted"),
                    Verdict::Refused { message } => {
                        tracing::warn!(
                            round,
                            message,
                            "update refused; with error feedback its content becomes part of a later update"
                        );
                    }
                }
                None
            }
            Event::Evaluated {
                version,
                model,
                evaluation,
            } => {
                tracing::info!(
                    version,
                    %model,
                    accuracy = evaluation.accuracy().map(four_digits),
                    perplexity = evaluation.perplexity().map(four_digits),
                    loss = four_digits(evaluation.loss),
                    examples = evaluation.examples,
                    "evaluated"
                );
                None
            }
            Event::NotEvaluated { version, why } => {
                tracing::warn!(version, why, "not evaluated");
                None
            }
            Event::LeftRound { round, why } => {
                tracing::warn!("left round {round}: {why}");
                None
            }
            Event::Failed { message } => {
                tracing::warn!(message, "the run failed; waiting for the server to try again");
                None
            }
            Event::Traffic { round, sent, received } => {
                tracing::info!(round, sent, received, "traffic");
                return;
            }
            Event::Disconnected { why, retry_in } => {
                let retry_in_ms = retry_in.as_millis() as u64;
                if self.is_new(&why) {
                    tracing::warn!(why, retry_in_ms, "not connected; trying again, with growing waits")
                } else {
                    tracing::debug!(why, retry_in_ms, "not connected")
                }
                Some(("waiting for the server".to_owned(), None))
            }
            Event::Done { round } => {
                if !self.over.swap(true, Ordering::Relaxed) {
                    tracing::info!(round, "the run is over");
                }
                None
            }
            Event::Fetched { .. } | Event::Encoded { .. } => None,
        };
        self.doing.send_replace(doing);
    }
}

async fn draw(bar: ProgressBar, mut doing: watch::Receiver<Doing>) {
    let style = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {percent}%");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut since = Instant::now();
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            changed = doing.changed() => {
                if changed.is_err() {
                    break;
                }
                since = Instant::now();
                bar.set_draw_target(ProgressDrawTarget::hidden());
            }
            _ = tick.tick() => {
                let Some((what, progress)) = doing.borrow().clone() else { continue };
                if since.elapsed() < PROGRESS_DELAY {
                    continue;
                }
                let (done, total) = progress.map_or((0, 0), |progress| progress.read());
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.set_length(total.max(1));
                bar.set_position(done);
                bar.set_message(what);
                bar.tick();
            }
        }
    }
    bar.finish_and_clear();
}
