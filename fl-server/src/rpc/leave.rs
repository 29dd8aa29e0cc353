//! `Leave`: a client announces that it will not answer.

use std::sync::Arc;

use fl_proto::{Departure, LeaveRequest, wire};
use tonic::Status;

use crate::coordinator::command::Command;
use crate::rpc::context::{Peer, Service, stopping};
use crate::telemetry::turned_away::TurnedFor;

pub(super) async fn leave(
    service: Arc<Service>,
    peer: Peer,
    asked: wire::LeaveRequest,
) -> Result<wire::LeaveReply, Status> {
    peer.counters.asked(&asked);
    let LeaveRequest { run, departure, reason } = asked.try_into()?;
    service.check_run(&run)?;
    let client = peer.client;
    match departure {
        Departure::Round(round) => {
            // The coordinator says so in each round.
            let why = format!("it does not answer in round {round}: {reason}");
            let now = service.events.clock.now();
            let status = &service.events.status;
            status.turned_away(client.as_str(), TurnedFor::Failure, &why, now);
        }
        Departure::Paused(round) => {
            tracing::debug!(%client, round, reason, "the client is paused and leaves the round")
        }
        Departure::Evaluation(version) => tracing::debug!(%client, version, reason, "no evaluation of the model"),
        Departure::Learner => service.events.turned_away(client.as_str(), TurnedFor::Learner, &reason),
        Departure::Failure => service.events.turned_away(client.as_str(), TurnedFor::Failure, &reason),
    }
    let command = Command::Leaves(client, departure, reason);
    service.commands.send(command).await.map_err(|_| stopping())?;
    let reply = wire::LeaveReply {};
    peer.counters.answered(&reply);
    Ok(reply)
}
