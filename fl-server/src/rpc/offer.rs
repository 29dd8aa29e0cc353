//! `Offer`: the outcome of an update, or from which byte to upload it.

use fl_proto::{ClientId, Refusal, UpdateHeader, UpdateId, UpdateReply, wire};
use tonic::Status;

use crate::rpc::context::Service;
use crate::rpc::peer::Peer;
use crate::state_machine::Standing;

pub(super) fn offer(service: &Service, peer: &Peer, asked: wire::UpdateHeader) -> Result<wire::UpdateReply, Status> {
    peer.counters.asked(&asked);
    let header = UpdateHeader::try_from(asked)?;
    let reply = standing(service, &peer.client, &header.id, header.len)?.into();
    peer.counters.answered(&reply);
    Ok(reply)
}

/// The outcome of an update of `len` bytes, or the first byte that the server does not have.
///
/// # Errors
/// `FAILED_PRECONDITION` while its round is interrupted: the client keeps the update and asks again.
pub(super) fn standing(service: &Service, client: &ClientId, id: &UpdateId, len: u64) -> Result<UpdateReply, Status> {
    let wanted = || UpdateReply::Wanted {
        offset: service.blobs.partial_len(client, id.round, &id.digest),
    };
    Ok(settled(service, client, id, len)?.unwrap_or_else(wanted))
}

/// The outcome of an update, if it is known without its bytes.
///
/// # Errors
/// As of [`standing`].
pub(super) fn settled(
    service: &Service,
    client: &ClientId,
    id: &UpdateId,
    len: u64,
) -> Result<Option<UpdateReply>, Status> {
    if id.run != service.plan.name {
        let message = format!("the update is of run `{}`, this is run `{}`", id.run, service.plan.name);
        return Ok(Some(UpdateReply::Refused {
            why: Refusal::NotThisRound,
            message,
        }));
    }
    let max = service.limits.max_frame;
    if len > max {
        let message = format!("the frame has {len} bytes, above the {max} that this model can need");
        return Ok(Some(UpdateReply::Refused {
            why: Refusal::TooLarge,
            message,
        }));
    }
    match service.state().standing(client, id.round, id.attempt, id.digest) {
        Standing::Wanted(_) => Ok(None),
        Standing::Settled(reply) => Ok(Some(reply)),
        Standing::NotNow(why) => Err(Status::failed_precondition(why)),
    }
}
