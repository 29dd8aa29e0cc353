//! The model update that travels with the state of a round, so that a small one need not be fetched.

use std::sync::Arc;

use bytes::Bytes;
use fl_proto::{FramePart, MAX_PUSH, ModelHeader, Phase, RoundState};

use super::context::Peer;
use crate::accounting::client_counters::DownloadKind;
use crate::accounting::transfers::DownloadAccount;
use crate::model::version_path;
use crate::rpc::context::Service;
use crate::state_machine::State;
use crate::telemetry::trace::Transfer;

/// The model updates that travel to one client.
#[derive(Debug)]
pub(super) struct Steps<'a> {
    service: &'a Arc<Service>,
    peer: &'a Peer,
}

impl<'a> Steps<'a> {
    pub(super) fn new(service: &'a Arc<Service>, peer: &'a Peer) -> Self {
        Self { service, peer }
    }

    /// The model update that makes `view.version`; `None` if the client does not need it, lacks the version before it, or if
    /// it is long. A client that gets none fetches.
    pub(super) async fn with(&self, view: &RoundState) -> Option<Step> {
        let part = due(&self.service.state(), view, self.peer.counters.version())?;
        Some(Step {
            account: DownloadAccount::begin(&self.peer.counters, DownloadKind::Steps),
            span: (self.service.tracer).download(&self.peer.client, view.version, &ModelHeader::steps(vec![part])),
            part,
            // The error is in the log; the client fetches, and gets it.
            bytes: self.service.frame(&part.digest).await.ok()?,
        })
    }
}

/// The model update that travels with `view` to a client that has the version `brought` from its connection.
pub(crate) fn due(state: &State, view: &RoundState, brought: Option<u64>) -> Option<FramePart> {
    let works = view.evaluate || (view.selected && view.accepted.is_none() && view.phase == Phase::Training);
    let held = view.version.checked_sub(1).filter(|_| works)?;
    if brought != Some(held) {
        return None;
    }
    let path = version_path(state, held, view.version)?;
    path.first().copied().filter(|part| part.len <= MAX_PUSH)
}

#[derive(Debug)]
pub(super) struct Step {
    part: FramePart,
    bytes: Bytes,
    account: DownloadAccount,
    span: Transfer,
}

impl Step {
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    pub(super) fn sent(self) {
        self.account.chunk(self.part.len);
        self.account.finish(self.part.version);
        self.span.done();
    }
}
