//! Makes decisions durable, then replies and publishes the new state.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::accounting::client_counters::UploadOutcome;
use crate::accounting::ledger::Row;
use crate::accounting::sample::RowSums;
use crate::coordinator::actor::Coordinator;
use crate::error::ServeError;
use crate::state_machine::{Input, Record};
use crate::storage::blobs::CompleteUpload;

/// Decisions that are not durable yet.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    /// Rows of the round that the records close.
    pub(super) rows: Vec<Row>,
    /// Frames of the updates that the records name.
    pub(super) accepted: Vec<CompleteUpload>,
    /// Frames that no record will name.
    pub(super) unused: Vec<CompleteUpload>,
    answers: Vec<Answer>,
}

/// Sends a reply once the batch is durable.
type Answer = Box<dyn FnOnce(&Coordinator) + Send>;

impl Batch {
    /// Replies with `value` once the batch is durable. A client that has disconnected asks again when it reconnects.
    pub(super) fn answer<T: Send + 'static>(&mut self, reply: oneshot::Sender<T>, value: T) {
        self.answer_with(reply, |_| value);
    }

    /// Replies with what `value` returns once the batch is durable.
    pub(super) fn answer_with<T: Send + 'static>(
        &mut self,
        reply: oneshot::Sender<T>,
        value: impl FnOnce(&Coordinator) -> T + Send + 'static,
    ) {
        self.answers
            .push(Box::new(move |coordinator| drop(reply.send(value(coordinator)))));
    }
}

impl Coordinator {
    /// Applies deadlines, makes the batch durable, replies, publishes the state, and starts its pending work.
    pub(super) async fn commit(&mut self, mut batch: Batch) -> Result<(), ServeError> {
        loop {
            let before = batch.records.len();
            self.decide(Input::Tick, &mut batch)?;
            if batch.records.len() == before {
                break;
            }
        }
        self.wake = self.state.wake(&self.plan, self.clock.now(), &self.present.presence);
        if !batch.records.is_empty() {
            let closed = batch.records.iter().find_map(closed);
            let sample = closed.map(|_| self.traffic.sample(UploadOutcome::Refused));
            let mut rows = std::mem::take(&mut batch.rows);
            if let Some((round, sample)) = closed.zip(sample.as_ref()) {
                rows.extend(sample.rows(round));
            }
            let accepted = std::mem::take(&mut batch.accepted);
            self.append(&batch.records, rows, accepted).await?;
            let told = batch.records.iter().any(Record::is_told);
            self.shown.send_if_modified(|shown| {
                *shown = Arc::clone(&self.state);
                told
            });
            self.announce(&batch.records, closed.zip(sample)).await;
        }
        self.announce_waiting().await;
        if !batch.unused.is_empty() {
            let unused = std::mem::take(&mut batch.unused);
            tokio::task::spawn_blocking(move || drop(unused)).await?;
        }
        for answer in batch.answers {
            answer(self);
        }
        if let Some(work) = self.state.pending_work() {
            self.model_task.want_close(work);
        }
        self.model_task.start();
        Ok(())
    }

    /// Books the bytes since the last round closed to the newest round.
    pub(super) async fn book_rest(&mut self) -> Result<(), ServeError> {
        let round = self.books_to();
        // RowSums as `update`: an upload in progress resumes after the restart.
        let sample = self.traffic.sample(UploadOutcome::Accepted);
        let mut rows = sample.rows(round);
        rows.append(&mut self.fidelity.rows());
        self.append(&[], rows, Vec::new()).await?;
        self.check(round, &sample).await;
        Ok(())
    }

    /// Turns the accepted uploads into blobs, then makes records and ledger rows durable together, with the hash
    /// chain's entry of a round that they close. No other task turns an upload into a blob, so a refused update never
    /// becomes one.
    async fn append(
        &mut self,
        records: &[Record],
        mut rows: Vec<Row>,
        accepted: Vec<CompleteUpload>,
    ) -> Result<(), ServeError> {
        let mut entries = Vec::new();
        rows.iter().for_each(|row| self.chain.row(row));
        for record in records {
            self.chain.record(record);
            entries.extend(closed(record).map(|round| Row::Entry {
                round,
                entry: self.chain.close(),
            }));
        }
        rows.append(&mut entries);
        let bytes: Vec<_> = rows.iter().map(Row::to_bytes).collect();
        let blobs = self.blobs.clone();
        let store = self.store.clone();
        let records = records.to_vec();
        tokio::task::spawn_blocking(move || {
            blobs.keep(accepted)?;
            Ok::<_, ServeError>(store.append(&records, &bytes)?)
        })
        .await??;
        if !rows.is_empty() {
            rows.iter().for_each(|row| self.booked.add(row));
            self.kept = RowSums::default();
        }
        self.pace.recorded();
        Ok(())
    }
}

fn closed(record: &Record) -> Option<u64> {
    match record {
        Record::RoundClosed { round, .. } => Some(*round),
        _ => None,
    }
}
