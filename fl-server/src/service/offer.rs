//! `Offer`: what an update would meet, without its bytes.

use fl_compress::Stages;
use fl_proto::{ClientId, Refusal, UpdateHeader, UpdateId, UpdateReply, wire};
use tonic::{Request, Status};

use super::Service;
use crate::engine::{Accepted, Input, Reply, decide};

pub(super) fn offer(service: &Service, request: Request<wire::UpdateHeader>) -> Result<wire::UpdateReply, Status> {
    let peer = service.caller(&request)?;
    let header = UpdateHeader::try_from(request.into_inner())?;
    let reply = standing(service, &peer.client, &header.id, header.len).into();
    peer.tally.answered(&reply);
    Ok(reply)
}

/// What an update of `len` bytes meets now: settled, or wanted from the first byte that is not here yet.
pub(super) fn standing(service: &Service, client: &ClientId, id: &UpdateId, len: u64) -> UpdateReply {
    if let Some(reply) = settled(service, client, id, len) {
        return reply;
    }
    UpdateReply::Wanted {
        offset: service.blobs.partial_len(client, id.round, &id.digest),
    }
}

/// What became of an update, if that is known without its bytes: the engine is asked as if it had arrived, and what
/// it would record is dropped.
pub(super) fn settled(service: &Service, client: &ClientId, id: &UpdateId, len: u64) -> Option<UpdateReply> {
    if id.run != service.plan.name {
        let message = format!("the update is of run `{}`, this is run `{}`", id.run, service.plan.name);
        return Some(UpdateReply::Refused {
            why: Refusal::NotThisRound,
            message,
        });
    }
    let max = service.limits.max_frame;
    if len > max {
        let message = format!("the frame has {len} bytes, above the {max} that this model can need");
        return Some(UpdateReply::Refused {
            why: Refusal::TooLarge,
            message,
        });
    }
    let now = (service.clock)();
    let update = Accepted {
        digest: id.digest,
        len,
        examples: 1,
        loss: 0.0,
        train_ms: 0,
        encode_ms: 0,
        stages: Stages::default(),
        at: now,
    };
    let input = Input::Update {
        client,
        round: id.round,
        update,
    };
    let decision = decide(&service.state(), &service.plan, now, &Default::default(), input);
    match decision.reply {
        Reply::Update(UpdateReply::Accepted) if decision.records.is_empty() => Some(UpdateReply::Accepted),
        Reply::Update(reply @ UpdateReply::Refused { .. }) => Some(reply),
        _ => None,
    }
}
