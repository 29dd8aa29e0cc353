//! The account of one upload or download: a guard that counts also where a call ends early.

use std::sync::Arc;

use fl_compress::Digest;
use fl_proto::Meter;
use tokio::time::Instant;

use crate::accounting::client_counters::{ClientCounters, DownloadKind, UploadOutcome};

/// The account of one upload call. Dropping it before the frame is complete books the chunk in flight as `aborted`; the
/// chunks that were kept stay pending, because the upload may resume.
#[derive(Debug)]
pub(crate) struct UploadAccount {
    counters: Arc<ClientCounters>,
    meter: Arc<Meter>,
    len: u64,
    /// Bytes of the frame that are kept.
    kept: u64,
    /// Bytes that the connection had carried when the account was opened.
    read_before: u64,
    /// Bytes of this call's chunks.
    received: u64,
    expects: bool,
    /// When the server began to receive chunks, until the frame is complete.
    since: Option<Instant>,
}

impl UploadAccount {
    /// The account of a call that brings a frame of `len` bytes. Books nothing yet.
    pub(crate) fn open(counters: &Arc<ClientCounters>, meter: &Arc<Meter>, len: u64) -> Self {
        Self {
            counters: Arc::clone(counters),
            meter: Arc::clone(meter),
            len,
            kept: 0,
            read_before: meter.read(),
            received: 0,
            expects: false,
            since: None,
        }
    }

    /// The client sends `frame` from the offset at which the server expects it. The same frame twice in a row is a retry.
    pub(crate) fn expect(&mut self, frame: &Digest) {
        self.expects = true;
        self.counters.begun(frame);
    }

    /// Chunks follow from `offset`. From 0, what is pending of an earlier upload is aborted.
    pub(crate) fn begin(&mut self, offset: u64) {
        self.expects = true;
        self.kept = offset;
        self.since = (offset < self.len).then(Instant::now);
        if offset == 0 {
            self.counters.settled(UploadOutcome::Aborted);
        }
    }

    /// A chunk of the frame. `kept`: whether it was written; if not, the client sends it again.
    pub(crate) fn chunk(&mut self, bytes: u64, kept: bool) {
        self.received += bytes;
        if !kept {
            return self.counters.lost(bytes);
        }
        self.counters.arrived(bytes);
        self.kept += bytes;
        if self.kept >= self.len {
            self.stop_clock();
        }
    }

    /// Books the frame's bytes, of this call and the earlier ones that it resumed.
    pub(crate) fn finish(self, outcome: UploadOutcome) -> UploadBooking {
        let bytes = self.counters.settled(outcome);
        let counters = Arc::clone(&self.counters);
        UploadBooking { counters, bytes }
    }

    fn stop_clock(&mut self) {
        if let Some(since) = self.since.take() {
            self.counters.uploaded_for(since.elapsed().as_millis() as u64);
        }
    }
}

impl Drop for UploadAccount {
    fn drop(&mut self) {
        self.stop_clock();
        if self.expects && self.kept < self.len {
            let read = self.meter.read().saturating_sub(self.read_before);
            self.counters.broke_off(read, self.received);
        }
    }
}

/// The bytes of a frame that [`UploadAccount::finish`] booked.
#[derive(Debug)]
pub(crate) struct UploadBooking {
    counters: Arc<ClientCounters>,
    bytes: u64,
}

impl UploadBooking {
    /// Books a frame as refused that was booked as accepted.
    pub(crate) fn refuse(self) {
        self.counters.refused_after_all(self.bytes);
    }
}

/// The account of one download call; dropping it books the time that it took.
#[derive(Debug)]
pub(crate) struct DownloadAccount {
    counters: Arc<ClientCounters>,
    kind: DownloadKind,
    since: Instant,
}

impl DownloadAccount {
    pub(crate) fn begin(counters: &Arc<ClientCounters>, kind: DownloadKind) -> Self {
        Self {
            counters: Arc::clone(counters),
            kind,
            since: Instant::now(),
        }
    }

    /// The chunks that follow belong to a frame of this kind.
    pub(crate) fn sends(&mut self, kind: DownloadKind) {
        self.kind = kind;
    }

    pub(crate) fn chunk(&self, bytes: u64) {
        self.counters.sent(self.kind, bytes);
    }

    /// The whole model of this version was handed to the connection.
    pub(crate) fn finish(self, version: u64) {
        self.counters.brought(version);
    }
}

impl Drop for DownloadAccount {
    fn drop(&mut self) {
        self.counters.downloaded_for(self.since.elapsed().as_millis() as u64);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::accounting::ledger::Flow;

    /// The counters after a connection carried `read` bytes while `upload` used the account of a frame of 1,000.
    async fn counted(read: usize, upload: impl FnOnce(UploadAccount)) -> Flow {
        let (counters, meter) = (Arc::default(), Arc::<Meter>::default());
        let account = UploadAccount::open(&counters, &meter, 1_000);
        let (connection, mut client) = tokio::io::duplex(1 << 16);
        let mut connection = fl_proto::Metered::new(connection, meter);
        client.write_all(&vec![0; read]).await.unwrap();
        connection.read_exact(&mut vec![0; read]).await.unwrap();
        upload(account);
        counters.flow(UploadOutcome::Refused)
    }

    #[tokio::test]
    async fn a_complete_frame_has_the_outcome_that_it_is_finished_with() {
        let complete = |account: &mut UploadAccount| {
            account.begin(0);
            account.chunk(600, true);
            account.chunk(400, true);
        };
        let flow = counted(9_000, |mut account| {
            complete(&mut account);
            account.finish(UploadOutcome::Accepted);
        });
        let flow = flow.await;
        assert_eq!((flow.update, flow.refused, flow.aborted), (1_000, 0, 0));
        let flow = counted(9_000, |mut account| {
            complete(&mut account);
            account.finish(UploadOutcome::Accepted).refuse();
        });
        let flow = flow.await;
        assert_eq!((flow.update, flow.refused, flow.aborted), (0, 1_000, 0));
        let flow = counted(9_000, |mut account| complete(&mut account)).await;
        assert_eq!(
            (flow.refused, flow.aborted),
            (1_000, 0),
            "it is pending, not broken off"
        );
    }

    #[tokio::test]
    async fn dropping_an_incomplete_upload_aborts_the_chunk_in_flight_and_chunks_that_were_not_kept() {
        let flow = counted(9_000, |mut account| {
            account.expect(&Digest::of(b"frame"));
            account.begin(0);
            account.chunk(600, true);
            account.chunk(100, false);
        });
        let flow = flow.await;
        assert_eq!(flow.refused, 600, "pending until its round ends");
        assert_eq!(flow.aborted, 100 + (9_000 - 700 - (700 / 256 + 256)));
        let flow = counted(9_000, drop).await;
        assert_eq!(
            flow.aborted, 0,
            "the client was told the offset and sends again from there"
        );
    }

    #[tokio::test]
    async fn an_upload_that_starts_over_aborts_what_was_pending() {
        let flow = counted(0, |mut account| {
            account.begin(0);
            account.chunk(600, true);
            let mut again = UploadAccount::open(&account.counters, &account.meter, 1_000);
            again.begin(0);
            again.chunk(1_000, true);
            again.finish(UploadOutcome::Accepted);
        });
        let flow = flow.await;
        assert_eq!((flow.update, flow.aborted), (1_000, 600));
    }
}
