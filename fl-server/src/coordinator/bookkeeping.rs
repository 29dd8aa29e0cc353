//! Writes bytes that are in no ledger row to the ledger's tail, and takes the snapshot from which displays and reports
//! are made.

use std::sync::Arc;

use crate::accounting::baseline::withheld;
use crate::accounting::ledger::Row;
use crate::accounting::sample::{Peek, RowSums};
use crate::coordinator::actor::Coordinator;
use crate::error::ServeError;
use crate::reporting::moment::Moment;

impl Coordinator {
    pub(super) fn books_to(&self) -> u64 {
        self.state
            .round()
            .map_or_else(|| self.state.versions().last_closed(), |round| round.number)
    }

    pub(super) fn moment(&self) -> Moment {
        let Peek {
            sample,
            meter,
            connected,
        } = self.traffic.peek();
        let withheld = withheld(connected.into_values(), self.state.version());
        Moment {
            state: Arc::clone(&self.state),
            known: self.events.status.known(),
            records: self.store.len(),
            rows: self.store.rows_len(),
            booked: self.booked,
            round: self.books_to(),
            kept: self.kept,
            meter,
            before: self.before,
            clients: self.traffic.clients(&sample),
            compared: self.history.compared(withheld),
            withheld,
            pending: sample,
        }
    }

    /// Writes bytes that are in no row to the ledger's tail, if it is time: a round may stay open for long, and a kill
    /// would lose them.
    pub(super) async fn keep_books(&mut self) -> Result<(), ServeError> {
        let unkept = self.traffic.passed() != self.kept.metered;
        if !self.pace.is_due(self.clock.now(), unkept) {
            return Ok(());
        }
        let sample = self.traffic.peek().sample;
        if !sample.is_balanced() {
            // Bytes are passing right now: the two counts differ for a moment.
            return Ok(());
        }
        let rows: Vec<_> = sample.rows(self.books_to()).iter().map(Row::to_bytes).collect();
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || store.set_tail(&rows)).await??;
        self.kept = RowSums::of(&sample);
        self.pace.kept();
        Ok(())
    }
}
