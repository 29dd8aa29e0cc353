//! `Join`: what a client needs to take part, and the outcome of its pending update.

use std::sync::Arc;
use std::time::Duration;

use fl_compress::{Digest, Layout};
use fl_proto::{ClientId, JoinRequest, Joined, PROTOCOL_MINOR, UpdateReply, wire};
use tonic::Status;

use super::offer;
use crate::config::plan::RunPlan;
use crate::model::run_metadata::Aside;
use crate::registry::seen::Joining;
use crate::rpc::context::{Peer, Service};
use crate::state_machine::State;
use crate::telemetry::turned_away::TurnedFor;

pub(super) async fn join(
    service: Arc<Service>,
    peer: Peer,
    asked: wire::JoinRequest,
) -> Result<wire::JoinReply, Status> {
    peer.counters.asked(&asked);
    let turned_away = |reason, why: &str| service.events.turned_away(peer.client.as_str(), reason, why);
    let asked = JoinRequest::try_from(asked);
    let asked = asked.inspect_err(|error| turned_away(TurnedFor::Protocol, &error.to_string()))?;
    if let Some(status) = refusal(&service, &asked.tasks) {
        turned_away(TurnedFor::Task, status.message());
        return Err(status);
    }
    let task = asked.tasks.iter().position(|task| *task == service.plan.task);
    let digest = task.and_then(|at| asked.classes.get(at)).copied();
    service.classes.note(&peer.client, digest.filter(|digest| *digest != 0));
    let classes = service.classes.check(&peer.client);
    classes.inspect_err(|status| turned_away(TurnedFor::Learner, status.message()))?;
    // An outcome that is not known yet is left out: the client asks again with `Offer`.
    let pending = asked
        .pending
        .and_then(|id| offer::standing(&service, &peer.client, &id, 1).ok());
    let joining = Joining {
        shown: Arc::clone(&peer.credential),
        address: peer.address,
        software: asked.software.clone(),
        device: asked.device.clone(),
    };
    service.registry.joined(joining).await;
    tracing::debug!(client = %peer.client, "joined");
    let joined = run_of(&service).joined(peer.client, &service.state(), pending);
    let run = service.joined_run.of(&joined)?;
    let reply = run.reply(&joined.client, joined.pending, asked.known);
    peer.counters.answered(&reply);
    Ok(reply)
}

/// Why a client with these tasks cannot take part in the run, if so.
pub(super) fn refusal(service: &Service, tasks: &[String]) -> Option<Status> {
    let plan = &service.plan;
    if !tasks.contains(&plan.task) {
        let text = format!(
            "this run needs task `{}`; bind it in client.toml (there: {tasks:?})",
            plan.task
        );
        return Some(Status::failed_precondition(text));
    }
    None
}

pub(super) fn run_of(service: &Service) -> Run<'_> {
    Run {
        plan: &service.plan,
        layout: &service.layout,
        aside: &service.aside,
        initial: service.initial,
        instance: service.instance,
        ping_every: service.tuning().ping_every,
    }
}

/// What every client of a run is told when it joins.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a RunPlan,
    pub(crate) layout: &'a Layout,
    pub(crate) aside: &'a Aside,
    pub(crate) initial: Digest,
    pub(crate) instance: Digest,
    pub(crate) ping_every: Duration,
}

impl Run<'_> {
    /// The reply to `client`. `pending`: the outcome of its pending update.
    pub(crate) fn joined(&self, client: ClientId, state: &State, pending: Option<UpdateReply>) -> Joined {
        let plan = self.plan;
        Joined {
            client,
            run: plan.name.clone(),
            task: plan.task.clone(),
            rounds: state.last_round(plan),
            seed: plan.seed,
            layout: self.layout.clone(),
            aside: self.aside.tensors.clone(),
            base: self.aside.base,
            serves_base: plan.serve_base && self.aside.base.is_some(),
            training: plan.training,
            extra: plan.extra.clone(),
            uplink: plan.uplink.clone(),
            max_frame: fl_proto::max_frame(self.layout.len(), self.layout.tensors().len()),
            pending,
            initial: self.initial,
            instance: self.instance,
            minor: PROTOCOL_MINOR,
            average: plan.average,
            ping_every: self.ping_every,
        }
    }
}
