//! The calls of `fl.v1.Enrollment`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{Enrolled, PROTOCOL_MAJOR, Secret, SigningRequest, wire};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status};
use wire::enrollment_server::{Enrollment, EnrollmentServer};

use crate::accounting::edge::{CallLimit, Edge, Enrolling};
use crate::config::live::LiveSettings;
use crate::registry::EnrollmentRequest;
use crate::registry::actor::{RegistryHandle, Stopping};
use crate::registry::refusal::Refusal;
use crate::rpc::call_rate::CallRate;
use crate::rpc::context::stopping;
use crate::rpc::door::network;

/// Longest message: a request of 4 KiB, the secret and a name.
const MAX_MESSAGE: usize = 8 * 1024;
/// What a wrong secret costs the caller.
const GUESS_COST: Duration = Duration::from_secs(1);

pub(super) fn service(
    registry: RegistryHandle,
    edge: Arc<Edge>,
    settings: watch::Receiver<Arc<LiveSettings>>,
) -> EnrollmentServer<Calls> {
    let calls = Calls {
        registry,
        edge,
        rate: CallRate::default(),
        settings,
    };
    EnrollmentServer::new(calls).max_decoding_message_size(MAX_MESSAGE)
}

#[derive(Debug)]
pub(super) struct Calls {
    registry: RegistryHandle,
    edge: Arc<Edge>,
    rate: CallRate<Queue>,
    settings: watch::Receiver<Arc<LiveSettings>>,
}

/// Whose calls wait for each other: those with one right secret, and of an address those with wrong ones, behind all of it. So a
/// device does not queue behind others of its address, which may be that of a whole site.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Queue {
    Line(Vec<u8>),
    Address(IpAddr),
}

impl Calls {
    async fn turn(&self, secret: &[u8], address: IpAddr) {
        let rate = self.settings.borrow().tuning.enroll_rate;
        self.edge.enroll.called();
        let is_right = Secret::from_bytes(secret).is_ok_and(|secret| self.registry.standings().knows(&secret));
        let mut queue = Queue::Address(network(address));
        if is_right {
            self.rate.count(&queue, rate);
            queue = Queue::Line(secret.to_vec());
        }
        self.rate
            .turn(queue, rate, || self.edge.enroll.limited(CallLimit::Rate))
            .await;
    }

    async fn ask(&self, request: wire::EnrollRequest, address: IpAddr) -> Result<Result<Enrolled, Refusal>, Status> {
        let wire::EnrollRequest {
            protocol_major,
            secret,
            request,
            name,
        } = request;
        if protocol_major != PROTOCOL_MAJOR {
            return Err(Status::invalid_argument(format!(
                "this server speaks version {PROTOCOL_MAJOR} of the protocol, and the device {protocol_major}; update the older one"
            )));
        }
        let secret = Secret::from_bytes(&secret)?;
        let request = match SigningRequest::from_der(&request) {
            Ok(request) => request,
            Err(error) => return Ok(Err(error.into())),
        };
        let request = EnrollmentRequest {
            secret,
            request,
            name: match name.as_str() {
                "" => None,
                name => Some(name.parse()?),
            },
            address: address.to_canonical(),
        };
        self.registry.enroll(request).await.map_err(|Stopping| stopping())
    }
}

#[tonic::async_trait]
impl Enrollment for Calls {
    async fn enroll(&self, request: Request<wire::EnrollRequest>) -> Result<Response<wire::EnrollReply>, Status> {
        let address = request.extensions().get::<SocketAddr>().copied();
        let address = address.ok_or_else(|| Status::internal("the connection has no address"))?;
        self.turn(&request.get_ref().secret, address.ip()).await;
        let asked = self.ask(request.into_inner(), address.ip()).await;
        let outcome = match &asked {
            Ok(Ok(Enrolled::Issued { .. })) => Enrolling::Issued,
            Ok(Ok(Enrolled::Held { .. })) => Enrolling::Held,
            Ok(Err(Refusal::Unknown)) => Enrolling::WrongSecret,
            Ok(Err(_)) | Err(_) => Enrolling::Refused,
        };
        self.edge.enrolled(outcome);
        if outcome == Enrolling::WrongSecret {
            tokio::time::sleep(GUESS_COST).await;
        }
        Ok(Response::new(asked??.into()))
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Unknown | Refusal::Used { .. } | Refusal::Expired(_) | Refusal::Revoked(_) => {
                Code::Unauthenticated
            }
            Refusal::Taken(_) | Refusal::TakenRevoked(_) | Refusal::NoName(_) => Code::AlreadyExists,
            Refusal::OtherName { .. } | Refusal::Denied(_) | Refusal::Ended(_) => Code::PermissionDenied,
            Refusal::Request(_) => Code::InvalidArgument,
            Refusal::Signer(_) => Code::FailedPrecondition,
            Refusal::Unused(_) => Code::ResourceExhausted,
            Refusal::Store(_) => Code::Unavailable,
        };
        Self::new(code, refusal.to_string())
    }
}
