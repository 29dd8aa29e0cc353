//! `Renew`: another certificate for the caller, with a new key.

use std::sync::Arc;

use fl_proto::{ProtocolError, SigningRequest, wire};
use tonic::Status;

use crate::registry::refusal::Refusal;
use crate::rpc::context::{Peer, Service, stopping};

pub(super) async fn renew(
    service: Arc<Service>,
    peer: Peer,
    message: wire::RenewRequest,
) -> Result<wire::RenewReply, Status> {
    peer.counters.asked(&message);
    if message.request.is_empty() {
        return Err(ProtocolError::Missing("request").into());
    }
    let signing = SigningRequest::from_der(&message.request).map_err(Refusal::from);
    let renewed = match signing {
        Ok(signing) => {
            let renewed = service.registry.renew(Arc::clone(&peer.credential), signing).await;
            renewed.map_err(|_| stopping())?
        }
        Err(refusal) => Err(refusal),
    };
    service.edge.renewed(renewed.is_ok());
    let certificate = renewed?;
    let reply = wire::RenewReply {
        issued: Some(certificate.into()),
    };
    peer.counters.answered(&reply);
    Ok(reply)
}
