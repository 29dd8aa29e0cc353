//! Uploads an update, resuming where an earlier upload stopped, until the server's answer is known and on disk.

use fl_compress::Ack;
use fl_proto::{EvaluationReport, UpdateReply};

use super::round_watch::RoundWatch;
use crate::client::{ClientActor, PendingUpdate};
use crate::error::Error;
use crate::event::{Event, Sink, Verdict};
use crate::rpc::Rpc;

/// Uploads `update` and stores the answer. `known`: an answer that the server gave earlier; with `None` the server is asked
/// first. `evaluation` travels with the update, and is taken once the server has it. On an error, the update stays pending.
/// A retry is safe at every point: the server identifies an update by its content, so the upload is idempotent.
pub(super) async fn upload(
    rpc: &mut Rpc,
    watch: &RoundWatch,
    actor: &ClientActor,
    events: &Sink,
    update: PendingUpdate,
    known: Option<UpdateReply>,
    evaluation: &mut Option<EvaluationReport>,
) -> Result<(), Error> {
    let PendingUpdate { mut header, frame } = update;
    let round = header.id.round;
    let bytes = header.len;
    let digest = header.id.digest;
    let mut reply = match known {
        Some(reply) => reply,
        None => rpc.offer(&header).await?,
    };
    let mut sent_from = None;
    let (verdict, sent) = loop {
        match reply {
            UpdateReply::Accepted => break (Ack::Accepted, Verdict::Accepted),
            UpdateReply::Refused { message, .. } => break (Ack::Rejected, Verdict::Refused { message }),
            UpdateReply::Wanted { offset } if offset > bytes || sent_from.is_some_and(|before| offset <= before) => {
                return Err(Error::Broken(format!(
                    "the upload does not advance: {bytes} bytes sent, {offset} received"
                )));
            }
            UpdateReply::Wanted { offset } => {
                sent_from = Some(offset);
                header.offset = offset;
                events.send(Event::Sending {
                    round,
                    bytes: bytes - offset,
                });
                header.evaluation.clone_from(evaluation);
                reply = match watch.upload(&header, &frame).await? {
                    Some(reply) => reply,
                    None => rpc.submit(&header, frame.clone()).await?,
                };
                *evaluation = None;
            }
        }
    };
    actor.call(move |client| client.settle(digest, verdict)).await??;
    events.send(Event::Sent {
        round,
        bytes,
        verdict: sent,
    });
    Ok(())
}
