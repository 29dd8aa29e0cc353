//! The calls of `fl.v1.Federation`, one file each. They check what is said, move bytes, and ask the coordinator; they hold
//! no state of the run and decide nothing.

pub(crate) mod door;
mod evaluate;
mod fetch;
mod join;
mod leave;
mod offer;
mod pace;
mod peer;
mod predictor;
mod submit;
mod turns;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fl_compress::{Digest, Layout};
use fl_proto::{MAX_MESSAGE, RunName, wire};
use prost::Message;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use wire::federation_server::{Federation, FederationServer};

use crate::accounting::connections::Connections;
use crate::clock::Clock;
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::coordinator::command::Command;
use crate::rpc::door::Caller;
use crate::state_machine::State;
use crate::storage::blobs::{BlobError, Blobs};
use crate::telemetry::events::Events;
use crate::telemetry::trace::Tracer;
use crate::telemetry::turned_away::TurnedFor;
use peer::Peer;
pub(crate) use predictor::LargestOfStep;
pub(crate) use turns::Turns;

/// What every call needs.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) plan: Arc<RunPlan>,
    pub(crate) layout: Arc<Layout>,
    /// Digest of model version 0.
    pub(crate) initial: Digest,
    /// Tells this run from others of its name.
    pub(crate) instance: Digest,
    /// The state of the run, as of the last durable record.
    pub(crate) state: tokio::sync::watch::Receiver<Arc<State>>,
    /// True when the server is about to stop.
    pub(crate) stopping: tokio::sync::watch::Receiver<bool>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) blobs: Blobs,
    pub(crate) traffic: Arc<Connections>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    pub(crate) revoked: PathBuf,
    pub(crate) tuning: Tuning,
    pub(crate) limits: Limits,
    pub(crate) turns: Arc<Turns>,
    /// Of the step that the newest model was made by.
    pub(crate) largest_of_step: LargestOfStep,
    pub(crate) tracer: Tracer,
}

/// Bounds on what is in memory at once.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Largest frame taken.
    max_frame: u64,
    uploads: Transfers,
    downloads: Transfers,
    /// One permit for each frame being verified.
    verifications: Semaphore,
}

/// A transfer up to this size does not wait for larger ones.
const SMALL: u64 = 64 * 1024;
/// Small transfers in one direction at once: each has a file open.
pub(crate) const SMALL_AT_ONCE: usize = 64;

/// Time after which a transfer in which nothing moves gives its place to another; it takes one again when something does.
const LAPSE: Duration = Duration::from_secs(1);

/// Places for the transfers in one direction. A client has at most one of them, see [`turns`], and only while there is
/// something to move.
#[derive(Debug)]
struct Transfers {
    large: Semaphore,
    small: Semaphore,
}

impl Transfers {
    fn new(large: usize) -> Self {
        Self {
            large: Semaphore::new(large),
            small: Semaphore::new(SMALL_AT_ONCE),
        }
    }

    /// Waits for a place for a transfer of so many bytes.
    async fn place(&self, bytes: u64) -> Result<SemaphorePermit<'_>, Status> {
        let places = if bytes > SMALL { &self.large } else { &self.small };
        places.acquire().await.map_err(internal)
    }
}

impl Limits {
    pub(crate) fn new(layout: &Layout, tuning: &Tuning) -> Self {
        Self {
            max_frame: fl_proto::max_frame(layout.len(), layout.tensors().len()),
            uploads: Transfers::new(tuning.transfers_at_once),
            downloads: Transfers::new(tuning.transfers_at_once),
            verifications: Semaphore::new(tuning.verify_at_once),
        }
    }
}

/// The calls, with the limits of the protocol.
pub(crate) fn federation(service: Service) -> FederationServer<Calls> {
    FederationServer::new(Calls(Arc::new(service)))
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

impl Service {
    /// The caller's name, if it is admitted.
    fn peer<T>(&self, request: &Request<T>) -> Result<Peer, Status> {
        let peer = peer::identify(request, &self.traffic, &self.revoked);
        peer.inspect_err(|status| self.turned_away(request, status))
    }

    /// Takes note of a caller that is not admitted.
    fn turned_away<T>(&self, request: &Request<T>, status: &Status) {
        let reason = match status.code() {
            Code::PermissionDenied => TurnedFor::Revoked,
            Code::Unauthenticated => TurnedFor::Certificate,
            Code::Unavailable if status.message().starts_with(peer::UNREADABLE) => TurnedFor::Revoked,
            _ => return,
        };
        let caller = request.extensions().get::<Caller>();
        let client = caller.map_or_else(
            || "a client without a name".to_owned(),
            |caller| caller.client.to_string(),
        );
        self.events.turned_away(&client, reason, status.message());
    }

    /// As [`Service::peer`], for a call of one message, which is counted.
    fn caller<M: Message>(&self, request: &Request<M>) -> Result<Peer, Status> {
        let peer = self.peer(request)?;
        peer.counters.asked(request.get_ref());
        Ok(peer)
    }

    /// Whether the caller is still admitted: asked again before what it sent counts.
    fn admit(&self, peer: &Peer) -> Result<(), Status> {
        peer::admit(&self.revoked, &peer.client, &peer.fingerprint)
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    /// Refuses a message that is about another run.
    fn check_run(&self, run: &RunName) -> Result<(), Status> {
        if *run != self.plan.name {
            let text = format!("this server runs `{}`, not `{run}`; join again", self.plan.name);
            return Err(Status::failed_precondition(text));
        }
        Ok(())
    }

    /// Asks the coordinator and waits for its answer, which comes when it is durable.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}

/// The client should come back.
fn stopping() -> Status {
    Status::unavailable("the server is stopping; come back")
}

/// Something on this side that the client can do nothing about.
fn internal(error: impl std::fmt::Display) -> Status {
    tracing::error!(%error, "call failed");
    Status::unavailable("the server cannot answer just now; come back")
}

/// A blob that cannot be had or kept. If only a descriptor is missing, nothing is wrong on this side.
fn unable(error: &BlobError) -> Status {
    match error {
        BlobError::Superseded => Status::aborted("a later upload of this client took over"),
        BlobError::Disk(error) if error.is_busy() => {
            tracing::warn!(%error, "a client is told to come back");
            Status::unavailable("the server has too many files open just now; come back")
        }
        error => internal(error),
    }
}

/// The service as the generated code wants it.
#[derive(Debug, Clone)]
pub(crate) struct Calls(Arc<Service>);

#[tonic::async_trait]
impl Federation for Calls {
    type WatchStream = ReceiverStream<Result<wire::RoundState, Status>>;
    type FetchStream = ReceiverStream<Result<wire::ModelChunk, Status>>;

    async fn join(&self, request: Request<wire::JoinRequest>) -> Result<Response<wire::JoinReply>, Status> {
        join::join(&self.0, request).map(Response::new)
    }

    async fn watch(&self, request: Request<wire::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        watch::watch(Arc::clone(&self.0), request).map(Response::new)
    }

    async fn fetch(&self, request: Request<wire::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        fetch::fetch(Arc::clone(&self.0), request).await.map(Response::new)
    }

    async fn offer(&self, request: Request<wire::UpdateHeader>) -> Result<Response<wire::UpdateReply>, Status> {
        offer::offer(&self.0, request).map(Response::new)
    }

    async fn submit(
        &self,
        request: Request<Streaming<wire::UpdateChunk>>,
    ) -> Result<Response<wire::UpdateReply>, Status> {
        submit::submit(Arc::clone(&self.0), request).await.map(Response::new)
    }

    async fn leave(&self, request: Request<wire::LeaveRequest>) -> Result<Response<wire::LeaveReply>, Status> {
        leave::leave(&self.0, request).await.map(Response::new)
    }

    async fn evaluate(
        &self,
        request: Request<wire::EvaluationReport>,
    ) -> Result<Response<wire::EvaluationReply>, Status> {
        evaluate::evaluate(&self.0, request).await.map(Response::new)
    }
}
