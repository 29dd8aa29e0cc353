//! The run and its ledger at one moment: the source of every display and report of a served run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::accounting::baseline::BaselineModels;
use crate::accounting::ledger::Flow;
use crate::accounting::sample::{ClientBytes, RowSums, Sample};
use crate::state_machine::State;
use crate::telemetry::status::StatusSnapshot;

#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) state: Arc<State>,
    pub(crate) known: StatusSnapshot,
    /// Number of durable records and ledger rows.
    pub(crate) records: u64,
    pub(crate) rows: u64,
    /// Sums of these rows.
    pub(crate) booked: RowSums,
    /// Bytes on the sockets since the last row, and the round to which they belong.
    pub(crate) pending: Sample,
    pub(crate) round: u64,
    /// Sums of the ledger's tail: the part of `pending` that is on disk.
    pub(crate) kept: RowSums,
    /// Bytes up and down on the sockets since the server started.
    pub(crate) meter: (u64, u64),
    /// Bytes up and down on the sockets of earlier processes, from the rows.
    pub(crate) before: (u64, u64),
    /// Bytes of each client since the server started.
    pub(crate) clients: Vec<ClientBytes>,
    /// Models that the baseline leaves out because clients are still connected.
    pub(crate) withheld: u64,
    /// Models that federated averaging would have sent for the comparable rounds.
    pub(crate) compared: BaselineModels,
}

impl Moment {
    pub(crate) fn moved(&self) -> Flow {
        let mut moved = self.booked.flow;
        moved.add(&self.pending.total());
        moved
    }

    /// The part of these bytes that is not on disk yet.
    pub(crate) fn unkept(&self) -> Flow {
        self.pending.total().since(&self.kept.flow)
    }

    pub(crate) fn metered(&self) -> (u64, u64) {
        (
            self.before.0.saturating_add(self.meter.0),
            self.before.1.saturating_add(self.meter.1),
        )
    }

    pub(crate) fn is_balanced(&self) -> bool {
        let moved = self.moved();
        (moved.socket_up, moved.socket_down) == self.metered()
    }

    /// Bytes of fp32 averaging of a model of `parameters` values, divided by the bytes on the sockets; 0 while no round
    /// is comparable.
    pub(crate) fn ratio(&self, parameters: usize) -> f64 {
        let models = self.compared.up.saturating_add(self.compared.down);
        match self.moved().socket() {
            0 => 0.0,
            socket => models.saturating_mul(4 * parameters as u64) as f64 / socket as f64,
        }
    }
}

/// Bytes of a run up to this moment, in all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct RunBytes {
    pub(crate) socket_up: u64,
    pub(crate) socket_down: u64,
    /// The part of these bytes that is not on disk yet.
    pub(crate) pending_up: u64,
    pub(crate) pending_down: u64,
    /// Bytes of fp32 averaging for the comparable rounds, divided by the bytes on the sockets; 0 without any.
    pub(crate) ratio: f64,
    pub(crate) through: u64,
    pub(crate) balanced: bool,
}

impl RunBytes {
    pub(crate) fn of(moment: &Moment, parameters: usize) -> Self {
        let moved = moment.moved();
        let pending = moment.unkept();
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
