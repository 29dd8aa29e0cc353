//! `Join`: what a client needs to take part, and the outcome of its pending update.

use std::sync::Arc;
use std::time::Duration;

use fl_compress::{Digest, Layout};
use fl_proto::{ClientId, JoinRequest, Joined, PROTOCOL_MINOR, Role, UpdateReply, wire};
use tonic::{Request, Status};

use super::offer;
use crate::config::plan::RunPlan;
use crate::model::run_metadata::Aside;
use crate::registry::client::Shown;
use crate::registry::seen::Joining;
use crate::rpc::context::Service;
use crate::state_machine::State;
use crate::telemetry::turned_away::TurnedFor;

pub(super) fn join(service: &Service, request: Request<wire::JoinRequest>) -> Result<wire::JoinReply, Status> {
    let peer = service.caller(&request)?;
    let turned_away = |reason, why: &str| service.events.turned_away(peer.client.as_str(), reason, why);
    let asked = JoinRequest::try_from(request.into_inner());
    let asked = asked.inspect_err(|error| turned_away(TurnedFor::Protocol, &error.to_string()))?;
    if let Some((reason, status)) = refusal(service, peer.role, &asked.tasks) {
        turned_away(reason, status.message());
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
        .and_then(|id| offer::standing(service, &peer.client, &id, 1).ok());
    let expires = peer.lifetime.map_or(0, |lifetime| {
        u64::try_from(lifetime.expires.unix_timestamp()).unwrap_or(0) * 1000
    });
    service.registry.joined(Joining {
        shown: Shown {
            client: peer.client.clone(),
            fingerprint: peer.fingerprint,
            role: peer.role,
            expires,
            authority: None,
        },
        certificate: Arc::clone(&peer.certificate),
        address: peer.address.to_string(),
        software: asked.software.clone(),
        device: asked.device.clone(),
    });
    if let Some(lifetime) = peer.lifetime {
        service.events.status.certificate(&peer.client, lifetime);
    }
    tracing::debug!(client = %peer.client, "joined");
    let joined = run_of(service).joined(peer.client, &service.state(), pending);
    let run = service.joined_run.of(&joined)?;
    let reply = run.reply(&joined.client, joined.pending, asked.known);
    peer.counters.answered(&reply);
    Ok(reply)
}

/// Why a client with this role and these tasks cannot take part in the run, if so.
pub(super) fn refusal(service: &Service, role: Role, tasks: &[String]) -> Option<(TurnedFor, Status)> {
    if role == Role::Operator {
        let text = "this certificate is an operator's, who takes part in no run; enroll this device as \
                    a client";
        return Some((TurnedFor::Certificate, Status::permission_denied(text)));
    }
    let plan = &service.plan;
    if !tasks.contains(&plan.task) {
        let text = format!(
            "this run needs task `{}`; bind it in client.toml (there: {tasks:?})",
            plan.task
        );
        return Some((TurnedFor::Task, Status::failed_precondition(text)));
    }
    None
}

/// The run as its clients are told of it.
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
