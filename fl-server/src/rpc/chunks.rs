//! The chunks of an upload as they arrive: at no less than the least rate, with a permit, and until a newer upload of the client.

use std::time::Duration;

use bytes::Bytes;
use fl_proto::{ProtocolError, wire};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout};
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;
use wire::update_chunk::Part;

use super::pace::{Pace, TooSlow};
use super::turns::Turn;
use crate::rpc::context::Service;
use crate::rpc::transfers::{LAPSE, UNWRITTEN_FOR, WRITTEN_AT_ONCE};

pub(super) trait Chunks: Stream<Item = Result<wire::UpdateChunk, Status>> + Send + Unpin {}

impl<S: Stream<Item = Result<wire::UpdateChunk, Status>> + Send + Unpin> Chunks for S {}

pub(super) struct Parts<'a, S> {
    pub(super) service: &'a Service,
    /// Of the frame.
    pub(super) bytes: u64,
    /// A chunk received before it was needed.
    pub(super) first: Option<Part>,
    pub(super) stream: S,
    pub(super) pace: Pace,
    pub(super) turn: Turn,
    /// Held while chunks arrive.
    pub(super) place: Option<SemaphorePermit<'a>>,
    /// Time without a permit.
    pub(super) waited: Duration,
}

impl<S: Chunks> Parts<'_, S> {
    /// The next chunk, if it comes within [`LAPSE`]. Otherwise releases the permit.
    pub(super) async fn soon(&mut self) -> Option<Result<Option<Part>, Status>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(Some(first)));
        }
        let coming = next(&mut self.pace, &mut self.turn, &mut self.stream);
        match timeout(LAPSE, coming).await {
            Ok(Ok(part)) => Some(self.placed(part).await),
            Ok(Err(status)) => Some(Err(status)),
            Err(_) => {
                self.place = None;
                None
            }
        }
    }

    /// The next chunk, however long it takes within the pace.
    pub(super) async fn later(&mut self) -> Result<Option<Part>, Status> {
        let part = next(&mut self.pace, &mut self.turn, &mut self.stream).await?;
        self.placed(part).await
    }

    async fn placed(&mut self, part: Option<Part>) -> Result<Option<Part>, Status> {
        if part.is_some() {
            self.take_place().await?;
        }
        Ok(part)
    }

    /// Acquires a permit, unless one is held.
    pub(super) async fn take_place(&mut self) -> Result<(), Status> {
        if self.place.is_none() {
            let begun = Instant::now();
            let place = tokio::select! {
                place = self.service.limits.uploads.place(self.bytes) => place?,
                status = self.turn.over() => return Err(status),
            };
            self.place = Some(place);
            self.pace.excuse(begun.elapsed());
            self.waited += begun.elapsed();
        }
        Ok(())
    }
}

/// Chunks of an upload that have arrived and are not written yet.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    chunks: Vec<Bytes>,
    bytes: u64,
    /// When the first of them arrived.
    since: Option<Instant>,
}

impl Unwritten {
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.bytes += chunk.len() as u64;
        self.chunks.push(chunk);
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether to write them now, although more will come.
    pub(super) fn is_due(&self) -> bool {
        self.bytes >= WRITTEN_AT_ONCE || self.since.is_some_and(|since| since.elapsed() >= UNWRITTEN_FOR)
    }

    pub(super) fn take(&mut self) -> Vec<Bytes> {
        std::mem::take(self).chunks
    }
}

/// The next chunk of the stream. A rate below the least one, or a newer upload of the client, ends the stream.
pub(super) async fn next(pace: &mut Pace, turn: &mut Turn, stream: &mut impl Chunks) -> Result<Option<Part>, Status> {
    let message = tokio::select! {
        message = pace.wait(stream.next()) => message,
        status = turn.over() => return Err(status),
    };
    match message {
        Ok(None) => Ok(None),
        Ok(Some(chunk)) => Ok(Some(chunk?.part.ok_or(ProtocolError::Missing("part"))?)),
        Err(TooSlow) => Err(Status::deadline_exceeded(
            "the upload is slower than this server waits for; resume it",
        )),
    }
}
