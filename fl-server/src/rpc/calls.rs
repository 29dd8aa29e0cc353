//! The gRPC service: each call is delegated to its own file.

use std::sync::Arc;

use fl_proto::{MAX_MESSAGE, wire};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::federation_server::{Federation, FederationServer};

use crate::rpc::admission::CallKind;
use crate::rpc::context::{Peer, Service};
use crate::rpc::{evaluate, fetch, fetch_base, join, leave, offer, probe, renew, submit, watch};

/// The service, with the protocol's message limits.
pub(crate) fn federation(service: Arc<Service>) -> FederationServer<Calls> {
    FederationServer::new(Calls(service))
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

#[derive(Debug, Clone)]
pub(crate) struct Calls(Arc<Service>);

impl Calls {
    /// Calls `handler` once the caller is admitted.
    async fn call<Q, R, A: Future<Output = Result<R, Status>>>(
        &self,
        kind: CallKind,
        request: Request<Q>,
        handler: impl FnOnce(Arc<Service>, Peer, Q) -> A,
    ) -> Result<Response<R>, Status> {
        let peer = self.0.enter(kind, &request).await?;
        handler(Arc::clone(&self.0), peer, request.into_inner())
            .await
            .map(Response::new)
    }
}

#[tonic::async_trait]
impl Federation for Calls {
    type WatchStream = ReceiverStream<Result<wire::RoundState, Status>>;
    type FetchStream = ReceiverStream<Result<wire::ModelChunk, Status>>;
    type FetchBaseStream = ReceiverStream<Result<wire::BaseChunk, Status>>;
    type ProbeStream = ReceiverStream<Result<wire::ProbeReply, Status>>;

    async fn join(&self, request: Request<wire::JoinRequest>) -> Result<Response<wire::JoinReply>, Status> {
        self.call(CallKind::Join, request, join::join).await
    }

    async fn watch(
        &self,
        request: Request<Streaming<wire::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.call(CallKind::Watch, request, watch::watch).await
    }

    async fn fetch(&self, request: Request<wire::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        self.call(CallKind::Fetch, request, fetch::fetch).await
    }

    async fn fetch_base(&self, request: Request<wire::BaseRequest>) -> Result<Response<Self::FetchBaseStream>, Status> {
        self.call(CallKind::FetchBase, request, fetch_base::fetch_base).await
    }

    async fn offer(&self, request: Request<wire::UpdateHeader>) -> Result<Response<wire::UpdateReply>, Status> {
        self.call(CallKind::Offer, request, offer::offer).await
    }

    async fn submit(
        &self,
        request: Request<Streaming<wire::UpdateChunk>>,
    ) -> Result<Response<wire::UpdateReply>, Status> {
        self.call(CallKind::Submit, request, submit::submit).await
    }

    async fn leave(&self, request: Request<wire::LeaveRequest>) -> Result<Response<wire::LeaveReply>, Status> {
        self.call(CallKind::Leave, request, leave::leave).await
    }

    async fn renew(&self, request: Request<wire::RenewRequest>) -> Result<Response<wire::RenewReply>, Status> {
        self.call(CallKind::Renew, request, renew::renew).await
    }

    async fn probe(
        &self,
        request: Request<Streaming<wire::ProbeRequest>>,
    ) -> Result<Response<Self::ProbeStream>, Status> {
        self.call(CallKind::Probe, request, probe::probe).await
    }

    async fn evaluate(
        &self,
        request: Request<wire::EvaluationReport>,
    ) -> Result<Response<wire::EvaluationReply>, Status> {
        self.call(CallKind::Evaluate, request, evaluate::evaluate).await
    }
}
