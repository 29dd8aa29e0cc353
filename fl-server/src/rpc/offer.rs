//! `Offer`: the outcome of an update, or from which byte to upload it.

use std::sync::Arc;

use fl_proto::{ClientId, Refusal, UpdateHeader, UpdateId, UpdateReply, wire};
use tonic::Status;

use crate::rpc::context::{Peer, Service};
use crate::state_machine::Standing;

pub(super) async fn offer(
    service: Arc<Service>,
    peer: Peer,
    header: wire::UpdateHeader,
) -> Result<wire::UpdateReply, Status> {
    peer.counters.asked(&header);
    let header = UpdateHeader::try_from(header)?;
    let reply = standing(&service, &peer.client, &header.id, header.len)?.into();
    peer.counters.answered(&reply);
    Ok(reply)
}

/// The outcome of an update of `len` bytes, or the first byte that the server does not have.
///
/// # Errors
/// `FAILED_PRECONDITION` while its round is interrupted: the client keeps the update and asks again.
pub(super) fn standing(service: &Service, client: &ClientId, id: &UpdateId, len: u64) -> Result<UpdateReply, Status> {
    Ok(match settled(service, client, id, len)? {
        Some(reply) => reply,
        None => UpdateReply::Wanted {
            offset: service.blobs.partial_len(client, id.round, &id.digest),
        },
    })
}

/// The outcome of an update, if it is known without its bytes.
pub(super) fn settled(
    service: &Service,
    client: &ClientId,
    id: &UpdateId,
    len: u64,
) -> Result<Option<UpdateReply>, Status> {
    if id.run != service.plan.name {
        return Ok(Some(UpdateReply::Refused {
            why: Refusal::NotThisRound,
            message: format!("the update is of run `{}`, this is run `{}`", id.run, service.plan.name),
        }));
    }
    let max = service.limits.max_frame;
    if len > max {
        return Ok(Some(UpdateReply::Refused {
            why: Refusal::TooLarge,
            message: format!("the frame has {len} bytes, above the {max} that this model can need"),
        }));
    }
    match service.state().standing(client, id.round, id.attempt, id.digest) {
        Standing::Wanted(_) => Ok(None),
        Standing::Settled(reply) => Ok(Some(reply)),
        Standing::NotNow(why) => Err(Status::failed_precondition(why)),
    }
}
