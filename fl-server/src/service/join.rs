//! `Join`: what a client needs to take part, and what became of the frame that it has pending.

use fl_proto::{JoinRequest, Joined, wire};
use tonic::{Request, Status};

use super::{Service, offer};

pub(super) fn join(service: &Service, request: Request<wire::JoinRequest>) -> Result<wire::JoinReply, Status> {
    let peer = service.caller(&request)?;
    let asked = JoinRequest::try_from(request.into_inner())?;
    let plan = &service.plan;
    if !asked.tasks.contains(&plan.task) {
        let text = format!(
            "this run needs task `{}`; bind it in client.toml (there: {:?})",
            plan.task, asked.tasks
        );
        return Err(Status::failed_precondition(text));
    }
    let pending = asked.pending.map(|id| offer::standing(service, &peer.client, &id, 1));
    if let Some(ends) = peer.ends {
        service.events.board.certificate(&peer.client, ends);
    }
    tracing::debug!(client = %peer.client, "joined");
    let joined = Joined {
        client: peer.client,
        run: plan.name.clone(),
        task: plan.task.clone(),
        rounds: service.state().last_round(plan),
        seed: plan.seed,
        layout: (*service.layout).clone(),
        training: plan.training,
        uplink: plan.uplink.clone(),
        max_frame: service.limits.max_frame,
        pending,
        initial: service.initial,
        instance: service.instance,
    };
    let reply = joined.to_wire()?;
    peer.tally.answered(&reply);
    Ok(reply)
}
