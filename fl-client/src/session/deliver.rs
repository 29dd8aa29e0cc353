//! Brings a frame to the server, from wherever it got to, until its fate is known and remembered.

use fl_compress::Verdict;
use fl_proto::UpdateReply;

use crate::Error;
use crate::event::{Event, Sent, Sink};
use crate::rpc::Rpc;
use crate::work::Outgoing;
use crate::worker::Worker;

/// Sends `outgoing` and settles it. `known`: what the server has said of it already; `None` asks first.
///
/// # Errors
/// Whatever breaks the call: the frame stays pending, and calling this again after the next connection is safe at every
/// point, because the server knows an update by its content.
pub(super) async fn deliver(
    rpc: &mut Rpc,
    worker: &Worker,
    events: &Sink,
    outgoing: Outgoing,
    known: Option<UpdateReply>,
) -> Result<(), Error> {
    let Outgoing { mut header, frame } = outgoing;
    let (round, bytes, digest) = (header.id.round, header.len, header.id.digest);
    let mut reply = match known {
        Some(reply) => reply,
        None => rpc.offer(&header).await?,
    };
    let mut sent_from = None;
    let (verdict, sent) = loop {
        match reply {
            UpdateReply::Accepted => break (Verdict::Accepted, Sent::Accepted),
            UpdateReply::Refused { message, .. } => break (Verdict::Refused, Sent::Refused { message }),
            UpdateReply::Wanted { offset } if offset > bytes || sent_from.is_some_and(|before| offset <= before) => {
                return Err(Error::Broken(format!(
                    "the upload makes no headway: {bytes} bytes sent, {offset} received"
                )));
            }
            UpdateReply::Wanted { offset } => {
                sent_from = Some(offset);
                header.offset = offset;
                events.send(Event::Sending {
                    round,
                    bytes: bytes - offset,
                });
                reply = rpc.submit(&header, frame.clone()).await?;
            }
        }
    };
    worker.call(move |work| work.settle(digest, verdict)).await??;
    events.send(Event::Sent {
        round,
        bytes,
        verdict: sent,
    });
    Ok(())
}
