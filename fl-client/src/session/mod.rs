//! The whole life of a client: connect, join, act on the state of the run, come back after every break.

mod books;
mod deliver;
mod fetch;
mod link;
mod memo;
mod newest;
mod training;

use std::sync::Arc;

use fl_proto::Meter;
use tokio::time::Instant;

use crate::event::Sink;
use crate::trace;
use crate::work::Work;
use crate::worker::Worker;
use crate::{ClientConfig, Error, Event, Tasks};
use books::Books;
use memo::Memo;

/// How a client's life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The run is over.
    Done {
        /// Its last round.
        round: u64,
    },
    /// `shutdown` completed. Nothing is lost: the client goes on when it is started again.
    Stopped,
}

/// Takes part in the runs of a federation until the run is over, `shutdown` completes, or trying again cannot help.
///
/// Learners compute on the blocking pool, at most as many at once as `config.gate` has permits. Whatever must not be lost
/// is on disk before it is sent. When this returns, the state folder is free again. If the returned future is dropped
/// instead, the learner is told to stop, and the folder is freed soon after.
///
/// # Errors
/// `Config`, `Refused`, `Protocol`, `State`, `Learner`, `Crashed`, or `GaveUp`, and with `exit_when_done` `OtherTask`; what
/// may pass by itself is retried.
pub async fn run(
    mut config: ClientConfig,
    tasks: Tasks,
    events: impl Fn(Event) + Send + Sync + 'static,
    shutdown: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    config.meter = Arc::new(Meter::within(config.meter));
    let config = Arc::new(config);
    let (events, tracing) = trace::start(config.otlp.clone(), events);
    let mut books = Books::of(Arc::clone(&config.meter), events.clone());
    let names = tasks.names();
    let work = {
        let (config, events) = (Arc::clone(&config), events.clone());
        let open = move || Work::open(&config.state, config.sync, config.keep_model_every, tasks, events);
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(|e| Error::Crashed(format!("opening the state: {e}")))??
    };
    let (worker, ended) = Worker::start(work);
    let life = Box::pin(live(config, worker, events, &mut books, names));
    let outcome = tokio::select! {
        biased;
        () = shutdown => Ok(Outcome::Stopped),
        outcome = life => outcome,
    };
    books.close().await;
    // The worker's task ends now that its last handle is gone; only its panic could be reported here.
    let _ = ended.await;
    tracing.finish().await;
    outcome
}

async fn live(
    config: Arc<ClientConfig>,
    worker: Worker,
    events: Sink,
    books: &mut Books,
    tasks: Vec<String>,
) -> Result<Outcome, Error> {
    let who = fl_compress::Digest::of(config.own.certificate.as_bytes()).to_string();
    let mut memo = Memo::of(tasks);
    let mut attempt = 0;
    let mut contact = Instant::now();
    loop {
        let served = Box::pin(link::serve(&config, &worker, &events, books, &mut memo)).await;
        books.close().await;
        if std::mem::take(&mut memo.heard) {
            contact = Instant::now();
            // Two processes that share a certificate would push each other out as fast as they can connect.
            if !matches!(served, Err(Error::Displaced(_))) {
                attempt = 0;
            }
        }
        let (why, wait) = match served {
            Ok(round) if config.exit_when_done => return Ok(Outcome::Done { round }),
            Ok(_) => (None, config.backoff.max),
            // This run is the one that was asked for: there is nothing to wait for.
            Err(error @ Error::OtherTask(_)) if config.exit_when_done => return Err(error),
            Err(error) if error.is_transient() => (Some(error.to_string()), config.backoff.wait(&who, attempt)),
            Err(error) => return Err(error),
        };
        if let Some(limit) = config.give_up_after.filter(|limit| contact.elapsed() + wait > *limit) {
            let why = why.unwrap_or_else(|| "no new run began".to_owned());
            return Err(Error::GaveUp(format!(
                "{why} (for {} s, as `give_up_after` says)",
                limit.as_secs_f64()
            )));
        }
        if let Some(why) = why {
            events.send(Event::Disconnected { why, retry_in: wait });
        }
        attempt = attempt.saturating_add(1);
        tokio::time::sleep(wait).await;
    }
}
