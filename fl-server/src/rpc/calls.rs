//! The gRPC service: each call is delegated to its own file.

use std::sync::Arc;

use fl_proto::{MAX_MESSAGE, wire};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::federation_server::{Federation, FederationServer};

use crate::rpc::admission::CallKind;
use crate::rpc::context::Service;
use crate::rpc::{evaluate, fetch, fetch_base, join, leave, offer, probe, renew, submit, watch};

/// The service, with the protocol's message limits.
pub(crate) fn federation(service: Arc<Service>) -> FederationServer<Calls> {
    FederationServer::new(Calls(service))
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

#[derive(Debug, Clone)]
pub(crate) struct Calls(Arc<Service>);

#[tonic::async_trait]
impl Federation for Calls {
    type WatchStream = ReceiverStream<Result<wire::RoundState, Status>>;
    type FetchStream = ReceiverStream<Result<wire::ModelChunk, Status>>;
    type FetchBaseStream = ReceiverStream<Result<wire::BaseChunk, Status>>;
    type ProbeStream = ReceiverStream<Result<wire::ProbeReply, Status>>;

    async fn join(&self, request: Request<wire::JoinRequest>) -> Result<Response<wire::JoinReply>, Status> {
        let peer = self.0.enter(CallKind::Join, &request).await?;
        join::join(&self.0, peer, request.into_inner()).await.map(Response::new)
    }

    async fn watch(
        &self,
        request: Request<Streaming<wire::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let peer = self.0.enter(CallKind::Watch, &request).await?;
        watch::watch(Arc::clone(&self.0), peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn fetch(&self, request: Request<wire::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let peer = self.0.enter(CallKind::Fetch, &request).await?;
        fetch::fetch(Arc::clone(&self.0), peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn fetch_base(&self, request: Request<wire::BaseRequest>) -> Result<Response<Self::FetchBaseStream>, Status> {
        let peer = self.0.enter(CallKind::FetchBase, &request).await?;
        fetch_base::fetch_base(Arc::clone(&self.0), peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn offer(&self, request: Request<wire::UpdateHeader>) -> Result<Response<wire::UpdateReply>, Status> {
        let peer = self.0.enter(CallKind::Offer, &request).await?;
        offer::offer(&self.0, &peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn submit(
        &self,
        request: Request<Streaming<wire::UpdateChunk>>,
    ) -> Result<Response<wire::UpdateReply>, Status> {
        let peer = self.0.enter(CallKind::Submit, &request).await?;
        submit::submit(Arc::clone(&self.0), peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn leave(&self, request: Request<wire::LeaveRequest>) -> Result<Response<wire::LeaveReply>, Status> {
        let peer = self.0.enter(CallKind::Leave, &request).await?;
        leave::leave(&self.0, peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn renew(&self, request: Request<wire::RenewRequest>) -> Result<Response<wire::RenewReply>, Status> {
        let peer = self.0.enter(CallKind::Renew, &request).await?;
        renew::renew(&self.0, peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn probe(
        &self,
        request: Request<Streaming<wire::ProbeRequest>>,
    ) -> Result<Response<Self::ProbeStream>, Status> {
        let peer = self.0.enter(CallKind::Probe, &request).await?;
        probe::probe(Arc::clone(&self.0), peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn evaluate(
        &self,
        request: Request<wire::EvaluationReport>,
    ) -> Result<Response<wire::EvaluationReply>, Status> {
        let peer = self.0.enter(CallKind::Evaluate, &request).await?;
        evaluate::evaluate(&self.0, peer, request.into_inner())
            .await
            .map(Response::new)
    }
}
