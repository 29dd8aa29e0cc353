//! `Submit`: an update arrives in chunks that are kept across disconnects, is verified as a whole, and counted once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fl_compress::{Digest, Layout, Stages};
use fl_proto::{MAX_PUSH, ProtocolError, SectionFidelity, UpdateHeader, UpdateReply, wire};
use tokio::time::Instant;
use tonic::{Status, Streaming};
use wire::update_chunk::Part;

use super::chunks::{Chunks, Parts, Unwritten, next};
use super::context::Peer;
use super::measure::UploadStart;
use super::pace::Pace;
use super::verify::{Requirements, VerifyError, unusable, verify};
use super::{evaluate, offer};
use crate::accounting::client_counters::UploadOutcome;
use crate::accounting::transfers::UploadAccount;
use crate::coordinator::command::Command;
use crate::model::decoded_updates::DecodedUpdate;
use crate::rpc::admission::CallKind;
use crate::rpc::context::{Service, internal};
use crate::rpc::transfers::{HELD_FOR, MAX_HELD};
use crate::state_machine::{Accepted, Input, Millis, Reply, Transfer};
use crate::storage::blobs::{BlobError, CompleteUpload, Upload};
use crate::telemetry::event::Event;

pub(super) async fn submit(
    service: Arc<Service>,
    peer: Peer,
    chunks: Streaming<wire::UpdateChunk>,
) -> Result<wire::UpdateReply, Status> {
    let counters = Arc::clone(&peer.counters);
    let reply = answer(service, peer, chunks, None).await?.into();
    counters.answered(&reply);
    Ok(reply)
}

/// An update that arrived as one message on an open stream.
pub(super) async fn whole(
    service: Arc<Service>,
    peer: Peer,
    mut header: wire::UpdateHeader,
    frame: Bytes,
) -> Result<UpdateReply, Status> {
    service.admit(CallKind::Submit, &peer)?;
    if frame.len() as u64 > MAX_PUSH || header.len != frame.len() as u64 || header.offset != 0 {
        let why = format!(
            "{} bytes of {} from offset {} are not a whole frame of at most {MAX_PUSH} bytes; call Submit",
            frame.len(),
            header.len,
            header.offset
        );
        return Err(ProtocolError::invalid("frame", why).into());
    }
    if let Some(id) = header.id.as_mut().filter(|id| id.run.is_empty()) {
        id.run = service.plan.name.to_string();
    }
    let start = UploadStart::of_message(&peer.meter, header.len);
    let parts = [Part::Header(header), Part::Data(frame)].map(|part| Ok(wire::UpdateChunk { part: Some(part) }));
    answer(service, peer, tokio_stream::iter(parts), start).await
}

/// Receives an upload in a task that outlives the connection, so that received bytes are kept.
async fn answer(
    service: Arc<Service>,
    peer: Peer,
    stream: impl Chunks + 'static,
    start: Option<UploadStart>,
) -> Result<UpdateReply, Status> {
    let received = tokio::spawn(async move { receive(&service, &peer, stream, start).await });
    received.await.map_err(internal)?
}

/// `start`: when the upload began, if that was before its header was read.
async fn receive(
    service: &Arc<Service>,
    peer: &Peer,
    mut stream: impl Chunks,
    start: Option<UploadStart>,
) -> Result<UpdateReply, Status> {
    let mut turn = service.turn(CallKind::Submit, peer);
    let mut pace = Pace::up(&service.tuning(), &peer.meter);
    let Some(Part::Header(header)) = next(&mut pace, &mut turn, &mut stream).await? else {
        return Err(ProtocolError::Missing("header").into());
    };
    peer.counters.asked_with_evaluation(&header);
    let mut header = UpdateHeader::try_from(header)?;
    // Of an upload that is resumed, the beginning is not known.
    let start = start.or_else(|| (header.offset == 0).then(|| UploadStart::now(&peer.meter)));
    // Before the update, which may end the round, and the evaluations with it.
    let evaluation = header.evaluation.take();
    if let Some(report) = evaluation.filter(|report| report.run == service.plan.name) {
        evaluate::book(service, &peer.client, report).await?;
    }
    if let Some(reply) = offer::settled(service, &peer.client, &header.id, header.len)? {
        peer.counters.retried();
        return Ok(reply);
    }
    let stored = service
        .blobs
        .partial_len(&peer.client, header.id.round, &header.id.digest);
    let mut account = UploadAccount::open(&peer.counters, &peer.meter, header.len);
    let mut first = None;
    if stored == header.offset {
        account.expect(&header.id.digest);
    }
    if stored == header.offset && stored < header.len {
        // The upload waits for a permit only once it has bytes to write.
        first = next(&mut pace, &mut turn, &mut stream).await?;
        if first.is_none() {
            return offer::standing(service, &peer.client, &header.id, header.len);
        }
    }
    let mut parts = Parts {
        service,
        bytes: header.len,
        first,
        stream,
        pace,
        turn,
        place: None,
        waited: Duration::ZERO,
    };
    parts.take_place().await?;
    let upload = open(service, peer, &header).await?;
    if upload.offset() != header.offset {
        let offset = park(service, upload).await?.offset();
        return Ok(UpdateReply::Wanted { offset });
    }
    account.begin(header.offset);
    let span = service.tracer.upload(&peer.client, &header);
    let upload = fill(service, peer, &header, upload, &mut parts, &mut account).await?;
    if upload.offset() < header.len {
        return offer::standing(service, &peer.client, &header.id, header.len);
    }
    let handed_out = service.handed_out.at(&peer.client, header.id.round);
    let transfer = start
        .zip(handed_out)
        .and_then(|(start, handed_out)| start.end(&peer.meter, handed_out, parts.waited));
    let reply = settle(service, peer, header, upload, account, transfer).await?;
    span.answered(&reply);
    Ok(reply)
}

/// Begins or resumes the upload: a short one in memory.
async fn open(service: &Service, peer: &Peer, header: &UpdateHeader) -> Result<Upload, Status> {
    let blobs = service.blobs.clone();
    let client = peer.client.clone();
    let round = header.id.round;
    let digest = header.id.digest;
    let len = header.len;
    if len <= MAX_HELD
        && let Some(upload) = blobs.held_upload(&client, round, &digest, len)
    {
        return Ok(upload);
    }
    on_disk(service, move || blobs.upload(&client, round, &digest, len)).await
}

/// Appends the stream's chunks until the frame is complete or the stream ends. The chunks are kept in both cases: in memory only
/// while they arrive without a pause, and not for long.
async fn fill(
    service: &Service,
    peer: &Peer,
    header: &UpdateHeader,
    mut upload: Upload,
    parts: &mut Parts<'_, impl Chunks>,
    account: &mut UploadAccount,
) -> Result<Upload, Status> {
    let start = Instant::now();
    let mut unwritten = Unwritten::default();
    while upload.offset() + unwritten.bytes() < header.len {
        if start.elapsed() > HELD_FOR {
            upload = park(service, upload).await?;
        }
        let part = match parts.soon().await {
            Some(part) => part,
            None => {
                upload = append(service, upload, &mut unwritten, account).await?;
                upload = park(service, upload).await?;
                parts.later().await
            }
        };
        let left = header.len - upload.offset() - unwritten.bytes();
        let data = match part {
            Ok(Some(Part::Data(data))) if data.len() as u64 <= left => data,
            end => {
                upload = append(service, upload, &mut unwritten, account).await?;
                match end {
                    Ok(None) => break,
                    Ok(Some(Part::Header(_))) => {
                        return Err(ProtocolError::invalid("header", "it was already sent").into());
                    }
                    Ok(Some(Part::Data(_))) => {
                        return Err(ProtocolError::invalid("data", "more than `len` bytes").into());
                    }
                    Err(status) => {
                        park(service, upload).await?;
                        return Err(status);
                    }
                }
            }
        };
        parts.pace.moved(data.len() as u64);
        unwritten.push(data);
        let is_all = upload.offset() + unwritten.bytes() == header.len;
        if upload.is_held() || is_all || unwritten.is_due() {
            upload = append(service, upload, &mut unwritten, account).await?;
        }
        service.events.hint(|| Event::UpdateReceiving {
            client: peer.client.clone(),
            bytes: upload.offset() + unwritten.bytes(),
            total: header.len,
        });
    }
    if upload.offset() < header.len {
        return park(service, upload).await;
    }
    Ok(upload)
}

/// Appends the chunks that have arrived; those after an error are lost.
async fn append(
    service: &Service,
    mut upload: Upload,
    unwritten: &mut Unwritten,
    account: &mut UploadAccount,
) -> Result<Upload, Status> {
    let bytes = unwritten.bytes();
    let chunks = unwritten.take();
    if chunks.is_empty() {
        return Ok(upload);
    }
    let is_held = upload.is_held();
    let work = move || {
        let before = upload.offset();
        let written = chunks.iter().try_for_each(|chunk| upload.append(chunk));
        (upload.offset() - before, written.map(|()| upload))
    };
    let (kept, written) = if is_held {
        work()
    } else {
        tokio::task::spawn_blocking(work).await.map_err(internal)?
    };
    account.chunk(kept, true);
    if kept < bytes {
        account.chunk(bytes - kept, false);
    }
    match written {
        Ok(upload) => Ok(upload),
        Err(error) => Err(service.cannot_store(error).await),
    }
}

/// Writes what is held of an upload to its file, where a later call resumes it.
async fn park(service: &Service, mut upload: Upload) -> Result<Upload, Status> {
    if !upload.is_held() || upload.offset() == 0 {
        return Ok(upload);
    }
    on_disk(service, move || upload.park().map(|()| upload)).await
}

/// Verifies the complete frame, makes it durable, and submits it for counting. Its bytes are booked before: once the
/// frame counts, its round may close and book all bytes.
async fn settle(
    service: &Arc<Service>,
    peer: &Peer,
    header: UpdateHeader,
    upload: Upload,
    account: UploadAccount,
    transfer: Option<Transfer>,
) -> Result<UpdateReply, Status> {
    let round = header.id.round;
    let digest = header.id.digest;
    // An upload may last long, and verification may queue: check again that the client is admitted.
    if let Err(status) = service.admit(CallKind::Submit, peer) {
        account.finish(UploadOutcome::Refused);
        on_disk(service, move || upload.discard()).await?;
        return Err(status);
    }
    let verified = {
        let _permit = service.limits.verifications.acquire().await.map_err(internal)?;
        let service = Arc::clone(service);
        tokio::task::spawn_blocking(move || keep(upload, &service, round, &digest))
            .await
            .map_err(internal)?
    };
    let reply = match verified {
        Ok(frame) => {
            if let Err(status) = service.admit(CallKind::Submit, peer) {
                account.finish(UploadOutcome::Refused);
                service.updates.forget(&digest);
                return Err(status);
            }
            let booked = account.finish(UploadOutcome::Accepted);
            let reply = count(service, peer, &header, frame, transfer).await?;
            if reply != Reply::Update(UpdateReply::Accepted) {
                booked.refuse();
                service.updates.forget(&digest);
            }
            match reply {
                Reply::Update(reply) => reply,
                Reply::NotNow(why) => return Err(Status::failed_precondition(why)),
                other => return Err(internal(format_args!("an update got the reply {other:?}"))),
            }
        }
        Err(VerifyError::Unusable(why)) => {
            account.finish(UploadOutcome::Refused);
            unusable(&why)
        }
        Err(VerifyError::Blob(error)) => return Err(service.cannot_store(error).await),
    };
    if let UpdateReply::Refused { why, message } = &reply {
        service.events.status.refused();
        tracing::warn!(client = %peer.client, round, ?why, message, "update refused");
    }
    Ok(reply)
}

/// Asks the coordinator to count a durable update.
async fn count(
    service: &Service,
    peer: &Peer,
    header: &UpdateHeader,
    frame: DurableFrame,
    transfer: Option<Transfer>,
) -> Result<Reply, Status> {
    let input = Input::Update {
        client: peer.client.clone(),
        round: header.id.round,
        attempt: header.id.attempt,
        update: accepted(header, &service.layout, service.clock.now()),
        transfer,
    };
    let fidelity = figures(&frame.firsts, &header.fidelity);
    let frame = Box::new(frame.received);
    service
        .ask(|reply| Command::Update {
            input,
            frame,
            fidelity,
            reply,
        })
        .await
}

/// What is recorded of an update that counts.
pub(crate) fn accepted(header: &UpdateHeader, layout: &Layout, at: Millis) -> Accepted {
    Accepted {
        digest: header.id.digest,
        len: header.len,
        examples: header.examples,
        loss: header.loss,
        train_ms: header.train_ms,
        encode_ms: header.encode_ms,
        stages: Stages {
            fp32: 4 * layout.len() as u64,
            ..header.stages
        },
        at,
        metrics: Arc::clone(&header.metrics),
    }
}

/// The figures of each section with its first tensor. Figures of another
/// number of sections are a bug of the client and are ignored: the update itself is valid.
fn figures(firsts: &[u32], sections: &[SectionFidelity]) -> Vec<(u32, SectionFidelity)> {
    if firsts.len() != sections.len() {
        return Vec::new();
    }
    firsts.iter().copied().zip(sections.iter().copied()).collect()
}

struct DurableFrame {
    received: CompleteUpload,
    /// The first tensor of each section.
    firsts: Vec<u32>,
}

/// Makes a valid upload durable, and keeps what it decodes to; drops an invalid one.
fn keep(upload: Upload, service: &Service, round: u64, digest: &Digest) -> Result<DurableFrame, VerifyError> {
    let verified = service
        .limits
        .buffers
        .with(|buffer| decode(upload.read_whole(buffer)?, service, round));
    let update = match verified {
        Err(VerifyError::Unusable(why)) => {
            upload.discard()?;
            return Err(VerifyError::Unusable(why));
        }
        verified => verified?,
    };
    let received = match upload.finish(digest) {
        Err(BlobError::Damaged { found, .. }) => {
            return Err(VerifyError::Unusable(format!(
                "its digest is {found}, not what was said"
            )));
        }
        finished => finished?,
    };
    let firsts = update.sections.iter().map(|section| section.first).collect();
    service.updates.keep(*digest, update);
    Ok(DurableFrame { received, firsts })
}

/// Checks the frame against the state and the limits of the run. Returns what it decodes to.
fn decode(bytes: &[u8], service: &Service, round: u64) -> Result<DecodedUpdate, VerifyError> {
    let state = service.state();
    let required = Requirements::of((&state, &service.plan), &service.layout, round, &service.updates);
    verify(bytes, &required, |step| {
        let values = service
            .updates
            .read_model_update(step, &service.layout, || service.blobs.get(step))?;
        Ok(values.map_err(VerifyError::Unusable)?.largest())
    })
}

/// Runs `work` with an upload on the blocking pool.
async fn on_disk<T: Send + 'static>(
    service: &Service,
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await.map_err(internal)? {
        Ok(done) => Ok(done),
        Err(error) => Err(service.cannot_store(error).await),
    }
}
