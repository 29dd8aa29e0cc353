//! `Renew`: another certificate for the caller, with a new key.

use fl_proto::{ProtocolError, SigningRequest, wire};
use tonic::{Request, Status};

use crate::registry::refusal::Refusal;
use crate::rpc::context::{Service, stopping};

pub(super) async fn renew(service: &Service, request: Request<wire::RenewRequest>) -> Result<wire::RenewReply, Status> {
    let peer = service.caller(&request)?;
    let message = request.into_inner();
    if message.request.is_empty() {
        return Err(ProtocolError::Missing("request").into());
    }
    let signing = SigningRequest::from_der(&message.request).map_err(Refusal::from)?;
    let renewed = service.registry.renew(peer.client.clone(), peer.role, signing).await;
    let certificate = renewed.map_err(|_| stopping())??;
    let reply = wire::RenewReply {
        issued: Some(certificate.into()),
    };
    peer.counters.answered(&reply);
    Ok(reply)
}
