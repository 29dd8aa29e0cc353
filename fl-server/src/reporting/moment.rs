//! The run and its ledger at one moment: every display and report of a served run is made of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::accounting::baseline::Compared;
use crate::accounting::booked::Booked;
use crate::accounting::ledger::Flow;
use crate::accounting::sample::{Named, Sample};
use crate::state_machine::State;
use crate::telemetry::status::StatusSnapshot;

/// The run and its books at one moment: whatever is said of it is made of this.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) state: Arc<State>,
    pub(crate) known: StatusSnapshot,
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

    /// Bytes of plain averaging, at four a value of a model of `parameters`, over those of the sockets; 0 while there
    /// is nothing to compare.
    pub(crate) fn ratio(&self, parameters: usize) -> f64 {
        let models = self.compared.up.saturating_add(self.compared.down);
        match self.moved().socket() {
            0 => 0.0,
            socket => models.saturating_mul(4 * parameters as u64) as f64 / socket as f64,
        }
    }
}

/// What a run has moved up to this moment, in all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) socket_up: u64,
    pub(crate) socket_down: u64,
    /// What of it is not on disk yet.
    pub(crate) pending_up: u64,
    pub(crate) pending_down: u64,
    /// Bytes of fp32 averaging over these, as far as rounds can be compared; 0 for none.
    pub(crate) ratio: f64,
    /// The newest round that is compared as a whole.
    pub(crate) through: u64,
    /// Whether the ledger is what the sockets have carried.
    pub(crate) balanced: bool,
}

impl Moved {
    pub(crate) fn of(moment: &Moment, parameters: usize) -> Self {
        let (moved, pending) = (moment.moved(), moment.unkept());
        Self {
            socket_up: moved.socket_up,
            socket_down: moved.socket_down,
            pending_up: pending.socket_up,
            pending_down: pending.socket_down,
            ratio: moment.ratio(parameters),
            through: moment.compared.through,
            balanced: moment.is_balanced(),
        }
    }
}
