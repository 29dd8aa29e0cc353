//! The outer loop of a client: serve a connection, back off, connect again.

use std::sync::Arc;

use fl_proto::Meter;
use tokio::time::Instant;

use super::connection::ConnectionEnd;
use super::guest::Guest;
use super::reload::Reloads;
use super::renewal::clock_offset;
use super::serve::serve;
use super::session_state::SessionState;
use super::traffic_log::TrafficLog;
use crate::client::{ClientActor, ClientState};
use crate::config::ClientConfig;
use crate::error::Error;
use crate::event::{Event, Sink};
use crate::identity::{discard, is_pending};
use crate::tasks::Tasks;
use crate::{rpc, trace};

/// How [`run`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The run is over.
    Done {
        /// Its last round.
        round: u64,
    },
    /// `shutdown` completed. Nothing is lost: the client resumes when it is started again.
    Stopped,
}

/// Takes part in the runs of a federation until the run is over, `shutdown` completes, or trying again cannot help.
///
/// Learners compute on the blocking pool, at most as many at once as `config.gate` has permits. An update is on disk before
/// it is sent. When this function returns, the state folder is unlocked. If the returned future is dropped instead, the
/// learner stops and the folder is unlocked soon after.
///
/// # Errors
/// `Config`, `State`, `Learner`, `Crashed`, or `GaveUp`, and with `exit_when_done` `Refused`, `Unverified`, `Protocol` and
/// `OtherTask`. What answers in the server's place, or a server that refuses this client today, must not end a client for ever: all
/// else is retried, at last every ten minutes, and after a refusal every hour.
pub async fn run(
    mut config: ClientConfig,
    tasks: Tasks,
    events: impl Fn(Event) + Send + Sync + 'static,
    shutdown: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    config.meter = Arc::new(Meter::within(config.meter));
    let config = Arc::new(config);
    let (events, tracing) = trace::start(config.otlp.clone(), events);
    let mut traffic = TrafficLog::new(Arc::clone(&config.meter), events.clone());
    let names = tasks.names();
    let client = {
        let config = Arc::clone(&config);
        let events = events.clone();
        let opened = tokio::task::spawn_blocking(move || ClientState::open(&config, tasks, events)).await;
        opened.map_err(|e| Error::Crashed(format!("opening the state: {e}")))??
    };
    // The state folder is locked from here on.
    let mut guest = Guest::start(&config).await?;
    let reloads = Reloads::start(&config);
    let (actor, ended) = ClientActor::start(client);
    let life = Box::pin(live(config, actor, events, &mut traffic, names, (&mut guest, reloads)));
    let outcome = tokio::select! {
        biased;
        () = shutdown => Ok(Outcome::Stopped),
        outcome = life => outcome,
    };
    traffic.close().await;
    guest.end().await;
    // The actor's task ends now that its last handle is gone. Its only error is a panic, which was reported already.
    let _ = ended.await;
    tracing.finish().await;
    outcome
}

/// Whether a renewed certificate was not used yet and could be discarded.
fn drops_renewal(config: &ClientConfig) -> bool {
    let pending = config.identity.as_ref().filter(|files| is_pending(files));
    pending.is_some_and(|files| discard(files).is_ok())
}

async fn live(
    mut config: Arc<ClientConfig>,
    actor: ClientActor,
    events: Sink,
    traffic: &mut TrafficLog,
    tasks: Vec<String>,
    (guest, mut reloads): (&mut Guest, Reloads),
) -> Result<Outcome, Error> {
    let who = fl_compress::Digest::of(config.own.certificate.as_bytes()).to_string();
    let mut tls = rpc::tls(&config)?;
    let mut session = SessionState::new(tasks);
    let mut attempt = 0;
    let mut idle = 0u32;
    let mut contact = Instant::now();
    loop {
        let serving = Box::pin(serve(&config, &tls, &actor, &events, traffic, &mut session, guest));
        let served = tokio::select! {
            biased;
            // As if the connection had broken: a training in progress goes on, and what is pending is asked about again.
            new = reloads.changed() => Err(new),
            served = serving => Ok(served),
        };
        traffic.close().await;
        let served = match served {
            Ok(served) => served,
            Err(new) => {
                config = take_over(new, &actor, &mut session, guest).await;
                (tls, attempt) = (rpc::tls(&config)?, 0);
                continue;
            }
        };
        if std::mem::take(&mut session.answered) {
            contact = Instant::now();
            // Without back-off, two processes with one certificate would displace each other as fast as they can connect.
            if !matches!(served, Err(Error::Displaced(_))) {
                attempt = 0;
            }
        } else if !matches!(served, Err(Error::OtherTask(_) | Error::Unreachable(_))) {
            // A server that hangs up on a resumed session may tell the reason in a new one.
            tls = rpc::tls(&config)?;
        }
        let is_idle = match &served {
            Ok(served) => matches!(served, ConnectionEnd::Over(_) | ConnectionEnd::Failed),
            Err(error) => error.needs_a_person(),
        };
        idle = if is_idle { idle.saturating_add(1) } else { 0 };
        let (why, wait) = match served {
            Ok(ConnectionEnd::Over(round)) if config.exit_when_done => return Ok(Outcome::Done { round }),
            Ok(ConnectionEnd::Renewed) => {
                config = Arc::new(config.with_newest_identity()?);
                session.clock_offset = clock_offset(&config.own, (config.clock)());
                tls = rpc::tls(&config)?;
                continue;
            }
            Ok(ConnectionEnd::Rotated(authority)) => {
                config = Arc::new(ClientConfig {
                    authority,
                    ..ClientConfig::clone(&config)
                });
                tls = rpc::tls(&config)?;
                continue;
            }
            // A new certificate that the server does not accept must not keep out a client whose old one is valid.
            Err(Error::Refused(why) | Error::Unverified(why)) if drops_renewal(&config) => {
                config = Arc::new(config.with_newest_identity()?);
                tls = rpc::tls(&config)?;
                (
                    Some(format!("{why}; the certificate before it is used again")),
                    config.backoff.wait(&who, attempt),
                )
            }
            Ok(ConnectionEnd::Over(_) | ConnectionEnd::Failed) => (None, config.backoff.idle_wait(&who, idle)),
            // The caller asked for this run alone: there is nothing to wait for.
            Err(error) if config.exit_when_done && error.needs_a_person() => return Err(error),
            Err(Error::Refused(why)) => (Some(why), config.backoff.refused_wait(&who, idle)),
            Err(error) if error.needs_a_person() => (Some(error.to_string()), config.backoff.idle_wait(&who, idle)),
            Err(error) if error.is_transient() => (Some(error.to_string()), config.backoff.wait(&who, attempt)),
            Err(error) => return Err(error),
        };
        if let Some(limit) = config.give_up_after.filter(|limit| contact.elapsed() + wait > *limit) {
            let why = why.unwrap_or_else(|| "no new run began".to_owned());
            return Err(Error::GaveUp(format!(
                "{why} (for {} s, the limit `give_up_after_s`)",
                limit.as_secs_f64()
            )));
        }
        if let Some(why) = why {
            events.send(Event::Disconnected { why, retry_in: wait });
        }
        attempt = attempt.saturating_add(1);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            new = reloads.changed() => {
                config = take_over(new, &actor, &mut session, guest).await;
                (tls, attempt) = (rpc::tls(&config)?, 0);
            }
        }
    }
}

/// Goes on with a configuration that was read again.
async fn take_over(
    new: Arc<ClientConfig>,
    actor: &ClientActor,
    session: &mut SessionState,
    guest: &mut Guest,
) -> Arc<ClientConfig> {
    let most = new.max_update_bytes;
    let actor = actor.clone();
    // The actor is busy while it trains: the limit holds from the next training on.
    tokio::spawn(async move { actor.call(move |client| client.limit_updates(most)).await });
    if let Err(error) = guest.reload(&new).await {
        tracing::error!(%error, "`[when]` and `[limits]` of before stay in use");
    }
    if let Some(training) = &mut session.training {
        training.follow(&guest.monitor, new.when.max_pause);
    }
    new
}
