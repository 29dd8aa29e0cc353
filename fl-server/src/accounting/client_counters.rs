//! Counts the payload of one client's messages by purpose: frames, and messages with their five bytes of gRPC.
//!
//! The sockets are counted separately ([`crate::accounting::connections`]); the difference is TLS and HTTP/2.

use std::sync::Mutex;

use fl_compress::Digest;
use fl_proto::wire::{RoundState, UpdateHeader};
use prost::Message;

use crate::accounting::ledger::Flow;
use crate::lock::lock;

/// Bytes that gRPC adds in front of a message.
const PREFIX: u64 = 5;
/// TLS and HTTP/2 add about one byte for so many bytes of chunks.
const OVERHEAD: u64 = 256;
/// Bytes of other messages that a connection carries while it breaks, about.
const ENDING: u64 = 256;

#[derive(Debug, Default)]
pub(crate) struct ClientCounters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// All bytes that are booked, without those of the sockets.
    flow: Flow,
    /// Bytes received of a frame without an outcome yet.
    arrived: u64,
    /// Short digest of the frame whose upload began last.
    begun: u64,
    /// The newest model version that was handed to its connection completely.
    brought: Option<u64>,
}

/// How the bytes of an upload are booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadOutcome {
    /// As `update`: the frame counts in its round.
    Accepted,
    Refused,
    /// As `aborted`: the upload does not resume.
    Aborted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DownloadKind {
    Steps,
    Snapshot,
    /// The frozen tensors of the model.
    Base,
}

impl ClientCounters {
    /// Counts a received message that is neither frame nor evaluation.
    pub(crate) fn asked(&self, message: &impl Message) {
        lock(&self.0).flow.control_up += PREFIX + message.encoded_len() as u64;
    }

    /// Counts a received header of an update, and the evaluation that it carries as such.
    pub(crate) fn asked_with_evaluation(&self, header: &UpdateHeader) {
        let report = header.evaluation.as_ref();
        let evaluation = report.map_or(0, |report| report.encoded_len() as u64);
        let flow = &mut lock(&self.0).flow;
        flow.evaluation += evaluation;
        flow.control_up += PREFIX + header.encoded_len() as u64 - evaluation;
    }

    /// Counts a sent state of a round without the model update that it carries.
    pub(crate) fn told(&self, state: &RoundState) {
        lock(&self.0).flow.control_down += PREFIX + (state.encoded_len() - state.step.len()) as u64;
    }

    pub(crate) fn evaluated(&self, message: &impl Message) {
        lock(&self.0).flow.evaluation += PREFIX + message.encoded_len() as u64;
    }

    pub(crate) fn answered(&self, message: &impl Message) {
        lock(&self.0).flow.control_down += PREFIX + message.encoded_len() as u64;
    }

    pub(super) fn arrived(&self, bytes: u64) {
        lock(&self.0).arrived += bytes;
    }

    /// Counts a chunk that could not be kept.
    pub(super) fn lost(&self, bytes: u64) {
        lock(&self.0).flow.aborted += bytes;
    }

    /// Books the received bytes of the last frame, complete or not; returns their number.
    pub(super) fn settled(&self, fate: UploadOutcome) -> u64 {
        lock(&self.0).settle(fate)
    }

    /// Books a frame of `bytes` as refused that was booked as accepted.
    pub(super) fn refused_after_all(&self, bytes: u64) {
        let flow = &mut lock(&self.0).flow;
        flow.update -= bytes;
        flow.refused += bytes;
    }

    /// Counts a sent chunk of a model or of its base.
    pub(super) fn sent(&self, kind: DownloadKind, bytes: u64) {
        let flow = &mut lock(&self.0).flow;
        *match kind {
            DownloadKind::Steps => &mut flow.steps,
            DownloadKind::Snapshot => &mut flow.snapshot,
            DownloadKind::Base => &mut flow.base,
        } += bytes;
    }

    /// The model of this version was handed to the connection completely.
    pub(super) fn brought(&self, version: u64) {
        let brought = &mut lock(&self.0).brought;
        *brought = (*brought).max(Some(version));
    }

    /// The newest version that was handed to the connection completely.
    pub(crate) fn version(&self) -> Option<u64> {
        lock(&self.0).brought
    }

    /// Begins an upload. An upload of the same frame as before is a retry.
    pub(super) fn begun(&self, frame: &Digest) {
        let mut counts = lock(&self.0);
        let before = std::mem::replace(&mut counts.begun, frame.short());
        counts.flow.retries += u64::from(before == frame.short());
    }

    /// An upload broke off after the connection had carried `read` bytes, and complete chunks had `came` bytes. The
    /// difference, less the overhead of messages, is the chunk in flight, which the client sends again.
    pub(super) fn broke_off(&self, read: u64, came: u64) {
        let beyond = read.saturating_sub(came).saturating_sub(came / OVERHEAD + ENDING);
        self.lost(beyond);
    }

    /// Counts an upload that has an outcome already, or begins again.
    pub(crate) fn retried(&self) {
        lock(&self.0).flow.retries += 1;
    }

    pub(super) fn uploaded_for(&self, ms: u64) {
        lock(&self.0).flow.upload_ms += ms;
    }

    pub(super) fn downloaded_for(&self, ms: u64) {
        lock(&self.0).flow.download_ms += ms;
    }

    /// All bytes so far. `arriving`: how a frame in flight is booked.
    pub(crate) fn flow(&self, arriving: UploadOutcome) -> Flow {
        let mut counts = lock(&self.0);
        counts.settle(arriving);
        counts.flow
    }

    /// All bytes so far, with a frame in flight as an update. Changes nothing.
    pub(crate) fn peek(&self) -> Flow {
        let counts = lock(&self.0);
        let update = counts.flow.update + counts.arrived;
        Flow { update, ..counts.flow }
    }
}

impl Counts {
    fn settle(&mut self, fate: UploadOutcome) -> u64 {
        let bytes = std::mem::take(&mut self.arrived);
        *match fate {
            UploadOutcome::Accepted => &mut self.flow.update,
            UploadOutcome::Refused => &mut self.flow.refused,
            UploadOutcome::Aborted => &mut self.flow.aborted,
        } += bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_that_begins_again_is_a_retry_wherever_it_broke_off() {
        let counters = ClientCounters::default();
        let (first, second) = (Digest::of(b"1"), Digest::of(b"2"));
        [first, second, second, second]
            .iter()
            .for_each(|frame| counters.begun(frame));
        assert_eq!(counters.flow(UploadOutcome::Refused).retries, 2);
    }

    #[test]
    fn the_chunk_that_was_on_its_way_is_aborted_and_what_came_before_is_not() {
        let counters = ClientCounters::default();
        counters.arrived(131_072);
        counters.broke_off(131_072 + 40_000, 131_072);
        counters.arrived(1_000);
        counters.settled(UploadOutcome::Accepted);
        let flow = counters.flow(UploadOutcome::Refused);
        assert_eq!(flow.update, 132_072);
        assert!((39_000..40_000).contains(&flow.aborted), "{}", flow.aborted);
        let counters = ClientCounters::default();
        counters.broke_off(131_072 + 600, 131_072);
        assert_eq!(
            counters.flow(UploadOutcome::Refused).aborted,
            0,
            "what chunks cost is no waste"
        );
    }
}
