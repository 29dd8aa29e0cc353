//! The calls of `fl.v1.Enrollment`.

use std::net::SocketAddr;
use std::time::Duration;

use fl_proto::{PROTOCOL_MAJOR, Secret, SigningRequest, wire};
use tonic::{Code, Request, Response, Status};
use wire::enrollment_server::{Enrollment, EnrollmentServer};

use crate::registry::Asked;
use crate::registry::actor::RegistryHandle;
use crate::registry::refusal::Refusal;
use crate::rpc::context::stopping;

/// Longest message: a request of 4 KiB, the secret and a name.
const MAX_MESSAGE: usize = 8 * 1024;
/// What a wrong secret costs the caller.
const GUESS_COST: Duration = Duration::from_secs(1);

pub(super) fn service(registry: RegistryHandle) -> EnrollmentServer<Calls> {
    EnrollmentServer::new(Calls(registry)).max_decoding_message_size(MAX_MESSAGE)
}

#[derive(Debug)]
pub(super) struct Calls(RegistryHandle);

#[tonic::async_trait]
impl Enrollment for Calls {
    async fn enroll(&self, request: Request<wire::EnrollRequest>) -> Result<Response<wire::EnrollReply>, Status> {
        let address = request.extensions().get::<SocketAddr>().copied();
        let address = address.ok_or_else(|| Status::internal("the connection has no address"))?;
        let wire::EnrollRequest {
            protocol_major,
            secret,
            request,
            name,
        } = request.into_inner();
        if protocol_major != PROTOCOL_MAJOR {
            return Err(Status::invalid_argument(format!(
                "this server speaks version {PROTOCOL_MAJOR} of the protocol, and the device {protocol_major}; update the older one"
            )));
        }
        let asked = Asked {
            secret: Secret::from_bytes(&secret)?,
            request: SigningRequest::from_der(&request).map_err(Refusal::from)?,
            name: match name.as_str() {
                "" => None,
                name => Some(name.parse()?),
            },
            address: address.ip().to_canonical(),
        };
        match self.0.enroll(asked).await.map_err(|_| stopping())? {
            Ok(enrolled) => Ok(Response::new(enrolled.into())),
            Err(refusal) => {
                if refusal.is_guess() {
                    tokio::time::sleep(GUESS_COST).await;
                }
                Err(refusal.into())
            }
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Unknown | Refusal::Used { .. } | Refusal::Expired(_) | Refusal::Revoked(_) => {
                Code::Unauthenticated
            }
            Refusal::Taken(_) | Refusal::TakenRevoked(_) | Refusal::NoName(_) => Code::AlreadyExists,
            Refusal::OtherName { .. } | Refusal::Denied(_) => Code::PermissionDenied,
            Refusal::Request(_) => Code::InvalidArgument,
            Refusal::Signer(_) => Code::FailedPrecondition,
            Refusal::Unused(_) => Code::ResourceExhausted,
            Refusal::Store(_) => Code::Unavailable,
        };
        Self::new(code, refusal.to_string())
    }
}
