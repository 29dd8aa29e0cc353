//! `Submit`: an update arrives in chunks that are kept across disconnects, is verified as a whole, and counted once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fl_compress::{Digest, Layout, Stages};
use fl_proto::{MAX_PUSH, ProtocolError, Refusal, SectionFidelity, UpdateHeader, UpdateReply, wire};
use tokio::time::Instant;
use tonic::{Status, Streaming};
use wire::update_chunk::Part;

use super::chunks::{Chunks, Parts, Unwritten, next};
use super::measure::Begun;
use super::pace::Pace;
use super::peer::Peer;
use super::{evaluate, offer, predictor, verify};
use crate::accounting::client_counters::UploadOutcome;
use crate::accounting::transfers::UploadAccount;
use crate::coordinator::command::Command;
use crate::model::decoded_updates::DecodedUpdate;
use crate::rpc::admission::CallKind;
use crate::rpc::context::{Service, internal, unable};
use crate::rpc::transfers::{HELD_FOR, MAX_HELD};
use crate::state_machine::{Accepted, Input, Millis, Reply, Transfer};
use crate::storage::blobs::{BlobError, Received, Upload};
use crate::telemetry::event::Event;

pub(super) async fn submit(
    service: Arc<Service>,
    peer: Peer,
    chunks: Streaming<wire::UpdateChunk>,
) -> Result<wire::UpdateReply, Status> {
    let counters = Arc::clone(&peer.counters);
    // A separate task: it outlives the connection, so that received bytes are kept.
    let receive = receive(service, peer, chunks, None);
    let reply = tokio::spawn(receive).await.map_err(internal)??.into();
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
    let begun = Begun::of_message(&peer.meter, header.len);
    let parts = [Part::Header(header), Part::Data(frame)].map(|part| Ok(wire::UpdateChunk { part: Some(part) }));
    let receive = receive(service, peer, tokio_stream::iter(parts), begun);
    tokio::spawn(receive).await.map_err(internal)?
}

/// `begun`: when the upload began, if that was before its header was read.
async fn receive<S: Chunks>(
    service: Arc<Service>,
    peer: Peer,
    mut stream: S,
    begun: Option<Begun>,
) -> Result<UpdateReply, Status> {
    let mut turn = service.turn(CallKind::Submit, &peer);
    let mut pace = Pace::up(&service.tuning(), &peer.meter);
    let mut header = match next(&mut pace, &mut turn, &mut stream).await? {
        Some(Part::Header(header)) => {
            peer.counters.asked_with_evaluation(&header);
            UpdateHeader::try_from(header)?
        }
        _ => return Err(ProtocolError::Missing("header").into()),
    };
    // Of an upload that is resumed, the beginning is not known.
    let begun = begun.or_else(|| (header.offset == 0).then(|| Begun::now(&peer.meter)));
    // Before the update, which may end the round, and the evaluations with it.
    let evaluation = header.evaluation.take();
    if let Some(report) = evaluation.filter(|report| report.run == service.plan.name) {
        evaluate::book(&service, &peer.client, report).await?;
    }
    if let Some(reply) = offer::settled(&service, &peer.client, &header.id, header.len)? {
        peer.counters.retried();
        return Ok(reply);
    }
    let held = service
        .blobs
        .partial_len(&peer.client, header.id.round, &header.id.digest);
    let mut account = UploadAccount::open(&peer.counters, &peer.meter, header.len);
    let mut first = None;
    if held == header.offset {
        account.expect(&header.id.digest);
    }
    if held == header.offset && held < header.len {
        // The upload waits for a permit only once it has bytes to write.
        first = next(&mut pace, &mut turn, &mut stream).await?;
        if first.is_none() {
            return offer::standing(&service, &peer.client, &header.id, header.len);
        }
    }
    let mut parts = Parts {
        service: &service,
        bytes: header.len,
        first,
        stream,
        pace,
        turn,
        place: None,
        waited: Duration::ZERO,
    };
    parts.take_place().await?;
    let upload = {
        let (blobs, client, id, len) = (
            service.blobs.clone(),
            peer.client.clone(),
            header.id.clone(),
            header.len,
        );
        let in_memory = (len <= MAX_HELD).then(|| blobs.held_upload(&client, id.round, &id.digest, len));
        match in_memory.flatten() {
            Some(upload) => upload,
            None => on_disk(&service, move || blobs.upload(&client, id.round, &id.digest, len)).await?,
        }
    };
    if upload.offset() != header.offset {
        let upload = park(&service, upload).await?;
        return Ok(UpdateReply::Wanted {
            offset: upload.offset(),
        });
    }
    account.begin(header.offset);
    let span = service.tracer.upload(&peer.client, &header);
    let upload = fill(&service, &peer, &header, upload, &mut parts, &mut account).await?;
    if upload.offset() < header.len {
        return offer::standing(&service, &peer.client, &header.id, header.len);
    }
    let handed_out = service.handed_out.at(&peer.client, header.id.round);
    let transfer = begun.zip(handed_out);
    let transfer = transfer.and_then(|(begun, handed_out)| begun.end(&peer.meter, handed_out, parts.waited));
    let reply = settle(&service, &peer, header, upload, (account, transfer)).await?;
    span.answered(&reply);
    Ok(reply)
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
    let begun = Instant::now();
    let mut unwritten = Unwritten::default();
    while upload.offset() + unwritten.bytes() < header.len {
        if begun.elapsed() > HELD_FOR {
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
            ended => {
                upload = append(service, upload, &mut unwritten, account).await?;
                match ended {
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
    match upload.offset() < header.len {
        true => park(service, upload).await,
        false => Ok(upload),
    }
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
    let (kept, written) = match is_held {
        true => work(),
        false => tokio::task::spawn_blocking(work).await.map_err(internal)?,
    };
    account.chunk(kept, true);
    if kept < bytes {
        account.chunk(bytes - kept, false);
    }
    match written {
        Ok(upload) => Ok(upload),
        Err(error) => Err(failed(service, error).await),
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
    (account, transfer): (UploadAccount, Option<Transfer>),
) -> Result<UpdateReply, Status> {
    let round = header.id.round;
    // An upload may last long, and verification may queue: check again that the client is admitted.
    if let Err(status) = service.admit(CallKind::Submit, peer) {
        account.finish(UploadOutcome::Refused);
        on_disk(service, move || upload.discard()).await?;
        return Err(status);
    }
    let verified = {
        let _permit = service.limits.verifications.acquire().await.map_err(internal)?;
        let (shared, digest) = (Arc::clone(service), header.id.digest);
        on_disk(service, move || keep(upload, &shared, round, &digest)).await?
    };
    let reply = match verified {
        Err(why) => {
            account.finish(UploadOutcome::Refused);
            UpdateReply::Refused {
                why: Refusal::Invalid,
                message: format!("the frame is not usable: {why}"),
            }
        }
        Ok((frame, firsts)) => {
            if let Err(status) = service.admit(CallKind::Submit, peer) {
                account.finish(UploadOutcome::Refused);
                service.updates.forget(&header.id.digest);
                return Err(status);
            }
            let booked = account.finish(UploadOutcome::Accepted);
            let update = accepted(&header, &service.layout, service.clock.now());
            let input = Input::Update {
                client: peer.client.clone(),
                round,
                attempt: header.id.attempt,
                update,
                transfer,
            };
            let fidelity = figures(&firsts, &header.fidelity);
            let submit = |reply| Command::Update {
                input,
                frame: Box::new(frame),
                fidelity,
                reply,
            };
            let reply = service.ask(submit).await?;
            if reply != Reply::Update(UpdateReply::Accepted) {
                booked.refuse();
                service.updates.forget(&header.id.digest);
            }
            match reply {
                Reply::Update(reply) => reply,
                Reply::NotNow(why) => return Err(Status::failed_precondition(why)),
                other => return Err(internal(format_args!("an update got the reply {other:?}"))),
            }
        }
    };
    if let UpdateReply::Refused { why, message } = &reply {
        service.events.status.refused();
        tracing::warn!(client = %peer.client, round, ?why, message, "update refused");
    }
    Ok(reply)
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

/// Makes a valid upload durable, and keeps what it decodes to; drops an invalid one and returns why. Returns the durable frame
/// and the first tensor of each of its sections.
fn keep(
    upload: Upload,
    service: &Service,
    round: u64,
    digest: &Digest,
) -> Result<Result<(Received, Vec<u32>), String>, BlobError> {
    let verified = service
        .limits
        .buffers
        .with(|buffer| verify(upload.read_whole(buffer)?, service, round))?;
    let update = match verified {
        Ok(update) => update,
        Err(why) => {
            upload.discard()?;
            return Ok(Err(why));
        }
    };
    let frame = match upload.finish(digest) {
        Err(BlobError::Damaged { found, .. }) => return Ok(Err(format!("its digest is {found}, not what was said"))),
        finished => finished?,
    };
    let firsts = update.sections.iter().map(|section| section.first).collect();
    service.updates.keep(*digest, update);
    Ok(Ok((frame, firsts)))
}

/// Checks the frame against the state and the limits of the run. Returns what it decodes to, or why it is refused.
fn verify(bytes: &[u8], service: &Service, round: u64) -> Result<Result<DecodedUpdate, String>, BlobError> {
    let asked = verify::Asked {
        layout: &service.layout,
        round,
        step: predictor::of_round(&service.state(), &service.plan, round),
        largest: service.plan.largest_value(),
        updates: &service.updates,
    };
    let largest = |step: &Digest| {
        let read = || service.blobs.get(step);
        let values = service.updates.read_model_update(step, &service.layout, read)?;
        Ok(values.map(|values| values.largest()))
    };
    verify::verify(bytes, &asked, largest)
}

/// The status of a call whose upload failed. A failing disk stops the server.
async fn failed(service: &Service, error: BlobError) -> Status {
    if let BlobError::Disk(error) = &error
        && !error.is_busy()
    {
        let _ = service.commands.send(Command::Broken(error.clone())).await;
    }
    unable(&error)
}

/// Runs `work` with an upload on the blocking pool.
async fn on_disk<T: Send + 'static>(
    service: &Service,
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await.map_err(internal)? {
        Ok(done) => Ok(done),
        Err(error) => Err(failed(service, error).await),
    }
}
