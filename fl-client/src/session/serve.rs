//! Serves one connection: dials, joins, takes part, and says so when it leaves.

use std::sync::Arc;

use fl_proto::Departure;

use super::connection::{Connection, ConnectionEnd};
use super::guest::Guest;
use super::renewal;
use super::session_state::SessionState;
use super::traffic_log::TrafficLog;
use crate::client::ClientActor;
use crate::config::ClientConfig;
use crate::error::Error;
use crate::event::Sink;
use crate::identity::{is_half_promoted, is_pending, promote};
use crate::rpc::{KnownRun, Rpc};

pub(super) async fn serve(
    config: &Arc<ClientConfig>,
    tls: &Arc<rustls::ClientConfig>,
    actor: &ClientActor,
    events: &Sink,
    traffic: &mut TrafficLog,
    session: &mut SessionState,
    guest: &mut Guest,
) -> Result<ConnectionEnd, Error> {
    let mut rpc = Rpc::connect(config, tls).await?;
    // During training nothing is pending, and the actor is busy.
    let asked = match &session.training {
        Some(_) => None,
        None => actor.call(|client| client.pending()).await??,
    };
    let request = session.join_request(config, asked.clone());
    let said = request.classes.clone();
    let reply = rpc.join(request, session.told.as_ref()).await;
    let (mut joined, digest) = reply.map_err(|error| session.not_joined(error))?;
    if let Some(own) = config.name().filter(|own| *own != joined.client) {
        let named = &joined.client;
        return Err(Error::Protocol(format!(
            "the server takes this client for `{named}`, but its certificate is of `{own}`: something in between shows another \
             certificate; connect without it (a proxy must pass TLS through)"
        )));
    }
    session.said = said;
    session.answered = true;
    // The server has accepted the newest pair.
    if let Some(files) = config
        .identity
        .as_ref()
        .filter(|files| is_pending(files) || is_half_promoted(files))
        && let Err(error) = promote(files)
    {
        tracing::warn!(%error, "the new certificate stays beside the old one");
    }
    if let Some(files) = &config.identity
        && let Some(rest) = renewal::after_rotation(&config.authority, &config.own, &config.answered.certificates())
    {
        match renewal::replace_authority(files, &config.authority, &rest) {
            Ok(()) => {
                tracing::info!("the authority was rotated: the one before is not trusted any more");
                return Ok(ConnectionEnd::Rotated(rest));
            }
            Err(error) => tracing::warn!(%error, "the authority from before a rotation stays trusted"),
        }
    }
    let known = joined.pending.take();
    let joined = Arc::new(joined);
    session.told = Some(KnownRun {
        digest,
        joined: Arc::clone(&joined),
    });
    let run = joined.run.clone();
    let mut leaving = rpc.clone();
    let connection = Connection {
        config,
        actor,
        events,
        traffic,
        session,
        guest,
        rpc,
        joined,
    };
    let taken_part = Box::pin(connection.take_part(asked, known)).await;
    if let Err(error) = &taken_part
        && let Some(departure) = departure(error)
    {
        leaving.leave(&run, departure, error.to_string()).await;
    }
    taken_part
}

/// How the client leaves the run after this error; `None` if it reconnects by itself.
fn departure(error: &Error) -> Option<Departure> {
    match error {
        Error::Learner(_) | Error::Config(_) => Some(Departure::Learner),
        Error::Protocol(_) | Error::State { .. } | Error::Crashed(_) => Some(Departure::Failure),
        // The server does not wait for a client that it refused, and would not accept the call.
        Error::Refused(_)
        | Error::Unverified(_)
        | Error::Unreachable(_)
        | Error::Broken(_)
        | Error::Displaced(_)
        | Error::NotNow(_)
        | Error::OtherTask(_)
        | Error::GaveUp(_) => None,
    }
}
