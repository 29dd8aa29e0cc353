//! State and helpers shared by all calls.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use fl_compress::{Digest, Layout};
use fl_proto::{ClientId, Meter, RunName};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Status};

use crate::accounting::client_counters::ClientCounters;
use crate::accounting::connections::Connections;
use crate::accounting::edge::Edge;
use crate::clock::Clock;
use crate::config::live::LiveSettings;
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::coordinator::command::Command;
use crate::model::decoded_updates::DecodedUpdates;
use crate::model::run_metadata::Aside;
use crate::registry::actor::RegistryHandle;
use crate::registry::credential::Credential;
use crate::rpc::admission::{Admission, CallKind};
use crate::rpc::classes::Classes;
use crate::rpc::door::{Call, Caller};
use crate::rpc::measure::HandedOut;
use crate::rpc::shared::{SharedFrame, SharedReply};
use crate::rpc::transfers::Limits;
use crate::rpc::turns::{Turn, Turns};
use crate::state_machine::State;
use crate::storage::blobs::{BlobError, Blobs};
use crate::telemetry::events::Events;
use crate::telemetry::trace::Tracer;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) plan: Arc<RunPlan>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) aside: Aside,
    /// Digest of model version 0.
    pub(crate) initial: Digest,
    /// Identifies this run among those of its name.
    pub(crate) instance: Digest,
    /// The state of the run, as of the last durable record.
    pub(crate) state: tokio::sync::watch::Receiver<Arc<State>>,
    /// True when the server is about to stop.
    pub(crate) stopping: tokio::sync::watch::Receiver<bool>,
    pub(crate) exit_when_done: bool,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) blobs: Blobs,
    pub(crate) traffic: Arc<Connections>,
    pub(crate) edge: Arc<Edge>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    pub(crate) admission: Admission,
    pub(crate) classes: Classes,
    pub(crate) registry: RegistryHandle,
    pub(crate) settings: tokio::sync::watch::Receiver<Arc<LiveSettings>>,
    pub(crate) limits: Limits,
    pub(crate) turns: Arc<Turns>,
    pub(crate) handed_out: HandedOut,
    pub(crate) shared_frame: SharedFrame,
    pub(crate) joined_run: SharedReply,
    /// The updates of the open round, decoded.
    pub(crate) updates: Arc<DecodedUpdates>,
    pub(crate) tracer: Tracer,
}

/// The caller. Only [`Service::enter`] makes one, so that no handler begins before it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) client: ClientId,
    /// What its certificate says.
    pub(crate) credential: Arc<Credential>,
    pub(crate) address: IpAddr,
    /// Counts the connection's bytes.
    pub(crate) meter: Arc<Meter>,
    /// Counts the client's messages.
    pub(crate) counters: Arc<ClientCounters>,
    /// Marks the connection as in use.
    pub(super) call: Arc<Call>,
}

impl Service {
    pub(crate) fn tuning(&self) -> Tuning {
        self.settings.borrow().tuning
    }

    /// The caller of a call, once it is its turn and if it is admitted: at once, unless it made many. From here on the
    /// connection's bytes are booked to the client.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` without a usable certificate, `PERMISSION_DENIED` if the client may not make this call,
    /// `RESOURCE_EXHAUSTED` if it has too many calls open.
    pub(super) async fn enter<T>(&self, kind: CallKind, request: &Request<T>) -> Result<Peer, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Status::unauthenticated("the connection is not protected by TLS"))?;
        caller.turn().await;
        let client = caller.credential.client.clone();
        let counters = self.traffic.identified(&caller.meter, &client);
        let call = Arc::new(caller.call()?);
        let peer = Peer {
            client,
            credential: caller.credential,
            address: caller.address,
            meter: caller.meter,
            counters,
            call,
        };
        self.admit(kind, &peer)?;
        Ok(peer)
    }

    /// Checks that the caller may make this call now: also before anything counts that it sent long after the call began. Records
    /// a caller that may not.
    pub(super) fn admit(&self, kind: CallKind, peer: &Peer) -> Result<(), Status> {
        self.admission.admit(kind, &peer.credential).map_err(|denied| {
            let why = denied.to_string();
            self.events.turned_away(peer.client.as_str(), denied.reason(), &why);
            self.registry.rejected(peer.client.clone(), why);
            denied.into()
        })
    }

    /// The turn of a call that lasts: it ends with a newer one of the client, and within a second once the client is not admitted.
    pub(super) fn turn(self: &Arc<Self>, kind: CallKind, peer: &Peer) -> Turn {
        let service = Arc::clone(self);
        let caller = peer.clone();
        self.turns
            .take(&peer.client, kind, Box::new(move || service.admit(kind, &caller)))
    }

    /// The bytes of a frame of at most [`MAX_SHARED`](super::shared::MAX_SHARED) bytes, which many clients read.
    pub(super) async fn frame(self: &Arc<Self>, frame: &Digest) -> Result<Bytes, Status> {
        if let Some(bytes) = self.shared_frame.known(frame) {
            return Ok(bytes);
        }
        let service = Arc::clone(self);
        let frame = *frame;
        let read = tokio::task::spawn_blocking(move || service.shared_frame.get(&service.blobs, &frame));
        read.await.map_err(internal)?.map_err(|error| unable(&error))
    }

    /// The status of an upload that cannot be written or read back: the client keeps it and comes again. A failing disk stops the
    /// server.
    pub(super) async fn cannot_store(&self, error: BlobError) -> Status {
        if let BlobError::Disk(error) = &error
            && !error.is_busy()
        {
            let _ = self.commands.send(Command::Broken(error.clone())).await;
        }
        unable(&error)
    }

    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    pub(super) fn check_run(&self, run: &RunName) -> Result<(), Status> {
        if *run != self.plan.name {
            let text = format!("this server runs `{}`, not `{run}`; join again", self.plan.name);
            return Err(Status::failed_precondition(text));
        }
        Ok(())
    }

    /// Sends a request to the coordinator and waits for the reply, which follows when the decision is durable.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}

pub(super) fn stopping() -> Status {
    Status::unavailable("the server is stopping; retry later")
}

/// The status of a server-side failure, which is logged.
pub(super) fn internal(error: impl std::fmt::Display) -> Status {
    tracing::error!(%error, "call failed");
    Status::unavailable("the server cannot answer at the moment; retry later")
}

/// The status of a blob that cannot be read or written. A lack of file descriptors is no failure: the client retries.
pub(super) fn unable(error: &BlobError) -> Status {
    match error {
        BlobError::Superseded => Status::aborted("a later upload of this client took over"),
        BlobError::Disk(error) if error.is_busy() => {
            tracing::warn!(%error, "too many open files; a client is told to retry later");
            Status::unavailable("the server has too many open files; retry later")
        }
        error => internal(error),
    }
}
