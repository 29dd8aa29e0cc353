//! What of the sockets' bytes is on disk, and the run with its books at one moment.

use std::sync::Arc;

use super::Driver;
use crate::accounting::baseline::{self, Compared, Done, withheld};
use crate::accounting::ledger::{Flow, Row};
use crate::accounting::traffic::{Named, Peek, Sample};
use crate::admin::live::board::Known;
use crate::reporting::history::History;
use crate::server::serve::ServeError;
use crate::state_machine::{Phase, State};
use crate::storage::record::Millis;

/// What the rows of a run come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Booked {
    pub(crate) flow: Flow,
    /// What the meter counted, up and down.
    pub(crate) metered: (u64, u64),
}

impl Booked {
    /// Takes one row in.
    pub(crate) fn add(&mut self, row: &Row) {
        match row {
            Row::Client { flow, .. } => self.flow.add(flow),
            Row::Meter { read, written, .. } => {
                self.metered.0 = self.metered.0.saturating_add(*read);
                self.metered.1 = self.metered.1.saturating_add(*written);
            }
            Row::Sections { .. } | Row::Fidelity { .. } | Row::Link { .. } => {}
        }
    }

    fn of(sample: &Sample) -> Self {
        Self {
            flow: sample.total(),
            metered: sample.meter,
        }
    }
}

/// The run and its books at one moment: whatever is said of it is made of this.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) state: Arc<State>,
    pub(crate) known: Known,
    /// Records and ledger rows that are durable.
    pub(crate) records: u64,
    pub(crate) rows: u64,
    /// What these rows come to.
    pub(crate) booked: Booked,
    /// What the sockets have carried since the last of them, and the round that it belongs to.
    pub(crate) pending: Sample,
    pub(crate) round: u64,
    /// What of that is on disk nevertheless, in the ledger's tail.
    pub(crate) kept: Booked,
    /// What the endpoint's meter says: bytes up and down since the server was started.
    pub(crate) meter: (u64, u64),
    /// What the meter said in the rows of earlier processes.
    pub(crate) before: (u64, u64),
    /// Bytes of each client since the server was started.
    pub(crate) clients: Vec<Named>,
    /// Models that the baseline leaves out while clients are connected.
    pub(crate) withheld: u64,
    /// What federated averaging would have sent for the rounds that can be compared.
    pub(crate) compared: Compared,
}

impl Moment {
    /// Everything that the run has moved.
    pub(crate) fn moved(&self) -> Flow {
        let mut moved = self.booked.flow;
        moved.add(&self.pending.total());
        moved
    }

    /// What of it is not on disk yet.
    pub(crate) fn unkept(&self) -> Flow {
        self.pending.total().since(&self.kept.flow)
    }

    /// What the meter has counted, in this process and before.
    pub(crate) fn metered(&self) -> (u64, u64) {
        (
            self.before.0.saturating_add(self.meter.0),
            self.before.1.saturating_add(self.meter.1),
        )
    }

    /// Whether the rows, and what is not in one yet, are what the meter says now.
    pub(crate) fn is_balanced(&self) -> bool {
        let moved = self.moved();
        (moved.socket_up, moved.socket_down) == self.metered()
    }

    /// Bytes of plain averaging, at four a value of a model of `parameters`, over those of the sockets; 0 while there is
    /// nothing to compare.
    pub(crate) fn ratio(&self, parameters: usize) -> f64 {
        let models = self.compared.up.saturating_add(self.compared.down);
        match self.moved().socket() {
            0 => 0.0,
            socket => models.saturating_mul(4 * parameters as u64) as f64 / socket as f64,
        }
    }
}

/// When bytes that no row has are kept on disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Since when there are such bytes.
    since: Option<Millis>,
    /// How often they were kept since the last record.
    idle: u32,
}

/// Bytes are kept this long after they were first seen. The time doubles while nothing but bytes comes, such as the pings of
/// clients that wait.
const KEEP_WITHIN: Millis = 1_000;
/// How often it may double.
const DOUBLINGS: u32 = 4;

impl Pace {
    /// Whether to keep them now. `unkept`: whether there are any.
    pub(crate) fn is_due(&mut self, now: Millis, unkept: bool) -> bool {
        if !unkept {
            self.since = None;
            return false;
        }
        // A clock that was set back makes no difference but to this once.
        let since = self.since.map_or(now, |since| since.min(now));
        self.since = Some(since);
        now - since >= KEEP_WITHIN << self.idle.min(DOUBLINGS)
    }

    /// They were kept.
    pub(crate) fn kept(&mut self) {
        self.since = None;
        self.idle = self.idle.saturating_add(1);
    }

    /// Something was recorded.
    pub(crate) fn recorded(&mut self) {
        self.idle = 0;
    }
}

impl Driver {
    /// The round that bytes belong to now.
    pub(super) fn books_to(&self) -> u64 {
        self.state
            .round()
            .map_or_else(|| self.state.last_closed(), |round| round.number)
    }

    /// The run and its books now.
    pub(super) fn moment(&self) -> Moment {
        let Peek {
            sample,
            meter,
            connected,
        } = self.traffic.peek();
        let withheld = withheld(connected.into_values(), self.state.version());
        Moment {
            state: Arc::clone(&self.state),
            known: self.events.board.known(),
            records: self.store.len(),
            rows: self.store.rows_len(),
            booked: self.booked,
            round: self.books_to(),
            kept: self.kept,
            meter,
            before: self.before,
            clients: self.traffic.clients(&sample),
            compared: compared(&self.history, self.state.phase(), withheld),
            withheld,
            pending: sample,
        }
    }

    /// Keeps bytes that no row has, if it is time: no round may close for long, and a kill would lose them.
    pub(super) async fn keep_books(&mut self) -> Result<(), ServeError> {
        let unkept = self.traffic.passed() != self.kept.metered;
        if !self.pace.is_due(self.clock.now(), unkept) {
            return Ok(());
        }
        let sample = self.traffic.peek().sample;
        if !sample.is_balanced() {
            // Bytes pass right now.
            return Ok(());
        }
        let rows: Vec<_> = sample.rows(self.books_to()).iter().map(Row::to_bytes).collect();
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || store.set_tail(&rows))
            .await
            .map_err(ServeError::panicked)??;
        self.kept = Booked::of(&sample);
        self.pace.kept();
        Ok(())
    }
}

/// What federated averaging would have sent for the rounds of a run that can be compared.
fn compared(history: &History, phase: &Phase, withheld: u64) -> Compared {
    let done = matches!(phase, Phase::Done).then(|| Done {
        evaluated: history.last_evaluation(),
        withheld,
    });
    let round = |(round, sums): (&u64, &crate::reporting::history::Round)| baseline::Round {
        round: *round,
        closed: sums.closed.is_some(),
        asked: sums.cohort as u64,
        updates: sums.updates as u64,
    };
    baseline::compared(history.rounds.iter().map(round), done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_soon_and_less_often_while_nothing_else_comes() {
        let (mut pace, mut now, mut kept) = (Pace::default(), 0, Vec::new());
        while now < 60_000 {
            now += 500;
            if pace.is_due(now, true) {
                kept.push(now);
                pace.kept();
            }
        }
        assert_eq!(kept, [1_500, 4_000, 8_500, 17_000, 33_500, 50_000]);
        assert!(!pace.is_due(now + 500, true), "bytes seen at 50.5 s wait for 16 s");
        pace.recorded();
        assert!(
            pace.is_due(now + 500, true),
            "once something is recorded, 1 s is long enough"
        );
    }

    #[test]
    fn without_bytes_nothing_is_kept_and_a_clock_set_back_delays_it_only_once() {
        let mut pace = Pace::default();
        assert!(!pace.is_due(10_000, false) && !pace.is_due(99_000, true));
        assert!(!pace.is_due(5_000, true) && pace.is_due(6_000, true));
        assert!(!pace.is_due(7_000, false) && !pace.is_due(7_000, true));
    }
}
