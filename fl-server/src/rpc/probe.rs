//! `Probe`: a client measures its connection, and learns whether it could join. Nothing of the run changes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fl_proto::{CHUNK, MAX_PROBE, ProbeHeader, Probed, ProtocolError, wire};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use wire::{probe_reply, probe_request};

use super::context::Peer;
use super::join;
use super::pace::{Pace, TooSlow};
use crate::rpc::admission::CallKind;
use crate::rpc::context::Service;

/// What is sent; its content is of no importance.
static ZEROS: [u8; CHUNK] = [0; CHUNK];

type Replies = ReceiverStream<Result<wire::ProbeReply, Status>>;

pub(super) async fn probe(
    service: Arc<Service>,
    peer: Peer,
    parts: Streaming<wire::ProbeRequest>,
) -> Result<Replies, Status> {
    let mut pace = Pace::up(&service.tuning(), &peer.meter);
    let (header, place) = receive(&service, &peer, &mut pace, parts).await?;
    let result = probed(&service, &peer, &header)?.to_wire()?;
    let (replies, stream) = mpsc::channel(1);
    let mut pace = Pace::down(&service.tuning(), &peer.meter);
    tokio::spawn(async move {
        let _place = place;
        let data = (0..header.bytes).step_by(CHUNK).map(|at| {
            let len = CHUNK.min(header.bytes - at);
            probe_reply::Part::Data(Bytes::from_static(&ZEROS[..len]))
        });
        for part in std::iter::once(probe_reply::Part::Result(result)).chain(data) {
            let reply = wire::ProbeReply { part: Some(part) };
            // What only fills the connection is `transport`: a message of 64 KiB that is counted after its bytes have passed would
            // be missing from the other kinds of a later round.
            if let Some(probe_reply::Part::Result(_)) = &reply.part {
                peer.counters.answered(&reply);
            }
            // A client that is gone, or slower than the least rate, has no more interest.
            match pace.wait(replies.send(Ok(reply))).await {
                Ok(Ok(())) => pace.moved(CHUNK as u64),
                Ok(Err(_)) | Err(TooSlow) => return,
            }
        }
    });
    Ok(ReceiverStream::new(stream))
}

/// Reads the header, and discards what follows it. A probe that moves bytes has a place.
async fn receive(
    service: &Service,
    peer: &Peer,
    pace: &mut Pace,
    mut stream: Streaming<wire::ProbeRequest>,
) -> Result<(ProbeHeader, Option<OwnedSemaphorePermit>), Status> {
    let mut header: Option<ProbeHeader> = None;
    let mut place = None;
    let mut received = 0;
    while let Some(message) = pace.wait(stream.next()).await.map_err(|TooSlow| {
        Status::deadline_exceeded("the connection is slower than this server waits for (`least_rate`)")
    })? {
        let message = message?;
        if let Some(probe_request::Part::Header(_)) = &message.part {
            peer.counters.asked(&message);
        }
        match (message.part, &header) {
            (Some(probe_request::Part::Header(first)), None) => header = Some(ProbeHeader::try_from(first)?),
            (Some(probe_request::Part::Data(data)), Some(_)) => {
                received += data.len();
                pace.moved(data.len() as u64);
            }
            _ => return Err(ProtocolError::Missing("header").into()),
        }
        let moves = received > 0 || header.as_ref().is_some_and(|header| header.bytes > 0);
        if moves && place.is_none() {
            place = Some(service.limits.probes.place(&peer.client, Instant::now())?);
        }
        if received > MAX_PROBE {
            let why = format!("{received} bytes are above {MAX_PROBE}");
            return Err(ProtocolError::invalid("data", why).into());
        }
    }
    let header = header.ok_or(ProtocolError::Missing("header"))?;
    Ok((header, place))
}

fn probed(service: &Service, peer: &Peer, header: &ProbeHeader) -> Result<Probed, Status> {
    // The certificate may have been revoked meanwhile.
    service.admit(CallKind::Probe, peer)?;
    let refusal = join::refusal(service, &header.tasks);
    let state = service.state();
    let last = state.versions().last();
    Ok(Probed {
        clock: Duration::from_millis(service.clock.wall()),
        refusal: refusal.map(|status| status.message().to_owned()),
        run: join::run_of(service).joined(peer.client.clone(), &state, None),
        deadline: Duration::from_millis(service.plan.cohort.deadline),
        update_bytes: state.update_bytes(),
        step_bytes: last.map(|round| round.frame_len),
    })
}
