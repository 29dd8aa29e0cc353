//! `grpc.health.v1.Health`, for callers with a client's certificate. Its messages are booked like those of any other call.

use std::sync::Arc;

use tokio_stream::Empty;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::coordinator::command::Command;
use crate::rpc::admission::CallKind;
use crate::rpc::context::Service;

/// Largest request: the name of a service.
const MAX_REQUEST: usize = 1024;
/// The services that are known; the empty name is the whole server.
const SERVICES: [&str; 2] = ["", "fl.v1.Federation"];

pub(crate) fn health(service: Arc<Service>) -> HealthServer<Check> {
    HealthServer::new(Check(service)).max_decoding_message_size(MAX_REQUEST)
}

#[derive(Debug)]
pub(crate) struct Check(Arc<Service>);

#[tonic::async_trait]
impl Health for Check {
    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    /// `SERVING` if the coordinator answers.
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let peer = self.0.enter(CallKind::Health, &request).await?;
        peer.counters.asked(request.get_ref());
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("no such service; ask for `fl.v1.Federation`"));
        }
        let status = if *self.0.stopping.borrow() {
            ServingStatus::NotServing
        } else {
            ServingStatus::Serving
        };
        self.0.ask(|reply| Command::Present { reply }).await?;
        let reply = HealthCheckResponse { status: status.into() };
        peer.counters.answered(&reply);
        Ok(Response::new(reply))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let peer = self.0.enter(CallKind::Health, &request).await?;
        peer.counters.asked(request.get_ref());
        Err(Status::unimplemented("call Check instead"))
    }
}
