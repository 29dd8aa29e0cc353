//! Counts the payload of one client's messages by purpose: frames, and messages with their five bytes of gRPC.
//!
//! The sockets are counted separately ([`crate::accounting::connections`]); the difference is TLS and HTTP/2.

use std::sync::atomic::{AtomicU64, Ordering};

use fl_compress::Digest;
use fl_proto::wire::{RoundState, UpdateHeader};
use prost::Message;

use crate::accounting::ledger::Flow;

/// Bytes that gRPC adds in front of a message.
const PREFIX: u64 = 5;
/// TLS and HTTP/2 add about one byte for so many bytes of chunks.
const OVERHEAD: u64 = 256;
/// Bytes of other messages that a connection carries while it breaks, about.
const ENDING: u64 = 256;

#[derive(Debug, Default)]
pub(crate) struct ClientCounters {
    update: AtomicU64,
    refused: AtomicU64,
    aborted: AtomicU64,
    evaluation: AtomicU64,
    control_up: AtomicU64,
    steps: AtomicU64,
    snapshot: AtomicU64,
    base: AtomicU64,
    control_down: AtomicU64,
    retries: AtomicU64,
    upload_ms: AtomicU64,
    download_ms: AtomicU64,
    /// Bytes received of a frame without an outcome yet.
    arrived: AtomicU64,
    /// Short digest of the frame whose upload began last.
    begun: AtomicU64,
    /// 1 more than the newest model version that was handed to its connection completely; 0 for none.
    brought: AtomicU64,
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
        add(&self.control_up, PREFIX + message.encoded_len() as u64);
    }

    /// Counts a received header of an update, and the evaluation that it carries as such.
    pub(crate) fn asked_with_evaluation(&self, header: &UpdateHeader) {
        let report = header.evaluation.as_ref();
        let evaluation = report.map_or(0, |report| report.encoded_len() as u64);
        add(&self.evaluation, evaluation);
        add(&self.control_up, PREFIX + header.encoded_len() as u64 - evaluation);
    }

    /// Counts a sent state of a round without the model update that it carries.
    pub(crate) fn told(&self, state: &RoundState) {
        let bytes = PREFIX + (state.encoded_len() - state.step.len()) as u64;
        add(&self.control_down, bytes);
    }

    pub(crate) fn evaluated(&self, message: &impl Message) {
        add(&self.evaluation, PREFIX + message.encoded_len() as u64);
    }

    pub(crate) fn answered(&self, message: &impl Message) {
        add(&self.control_down, PREFIX + message.encoded_len() as u64);
    }

    pub(super) fn arrived(&self, bytes: u64) {
        add(&self.arrived, bytes);
    }

    /// Counts a chunk that could not be kept.
    pub(super) fn lost(&self, bytes: u64) {
        add(&self.aborted, bytes);
    }

    /// Books the received bytes of the last frame, complete or not; returns their number.
    pub(super) fn settled(&self, fate: UploadOutcome) -> u64 {
        let bytes = self.arrived.swap(0, Ordering::AcqRel);
        let counter = match fate {
            UploadOutcome::Accepted => &self.update,
            UploadOutcome::Refused => &self.refused,
            UploadOutcome::Aborted => &self.aborted,
        };
        add(counter, bytes);
        bytes
    }

    /// Books a frame of `bytes` as refused that was booked as accepted.
    pub(super) fn refused_after_all(&self, bytes: u64) {
        self.update.fetch_sub(bytes, Ordering::AcqRel);
        add(&self.refused, bytes);
    }

    /// Counts a sent chunk of a model or of its base.
    pub(super) fn sent(&self, kind: DownloadKind, bytes: u64) {
        let counter = match kind {
            DownloadKind::Steps => &self.steps,
            DownloadKind::Snapshot => &self.snapshot,
            DownloadKind::Base => &self.base,
        };
        add(counter, bytes);
    }

    /// The model of this version was handed to the connection completely.
    pub(super) fn brought(&self, version: u64) {
        self.brought.fetch_max(version.saturating_add(1), Ordering::AcqRel);
    }

    /// The newest version that was handed to the connection completely.
    pub(crate) fn version(&self) -> Option<u64> {
        self.brought.load(Ordering::Acquire).checked_sub(1)
    }

    /// Begins an upload. An upload of the same frame as before is a retry.
    pub(super) fn begun(&self, frame: &Digest) {
        if self.begun.swap(frame.short(), Ordering::AcqRel) == frame.short() {
            self.retried();
        }
    }

    /// An upload broke off after the connection had carried `read` bytes, and complete chunks had `came` bytes. The
    /// difference, less the overhead of messages, is the chunk in flight, which the client sends again.
    pub(super) fn broke_off(&self, read: u64, came: u64) {
        let beyond = read.saturating_sub(came).saturating_sub(came / OVERHEAD + ENDING);
        add(&self.aborted, beyond);
    }

    /// Counts an upload that has an outcome already, or begins again.
    pub(crate) fn retried(&self) {
        add(&self.retries, 1);
    }

    pub(super) fn uploaded_for(&self, ms: u64) {
        add(&self.upload_ms, ms);
    }

    pub(super) fn downloaded_for(&self, ms: u64) {
        add(&self.download_ms, ms);
    }

    /// All bytes so far. `arriving`: how a frame in flight is booked.
    pub(crate) fn flow(&self, arriving: UploadOutcome) -> Flow {
        self.settled(arriving);
        self.counted()
    }

    /// All bytes so far, with a frame in flight as an update. Changes nothing.
    pub(crate) fn peek(&self) -> Flow {
        let mut flow = self.counted();
        // Read after the counters: a frame that is settled in between is then missing, not counted twice.
        flow.update += self.arrived.load(Ordering::Acquire);
        flow
    }

    fn counted(&self) -> Flow {
        Flow {
            update: get(&self.update),
            refused: get(&self.refused),
            aborted: get(&self.aborted),
            evaluation: get(&self.evaluation),
            control_up: get(&self.control_up),
            steps: get(&self.steps),
            snapshot: get(&self.snapshot),
            base: get(&self.base),
            control_down: get(&self.control_down),
            retries: get(&self.retries),
            upload_ms: get(&self.upload_ms),
            download_ms: get(&self.download_ms),
            ..Flow::default()
        }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::AcqRel);
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
