//! The coordinator: the state of the run, and everything that its one task owns beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_proto::ClientId;
use tokio::sync::watch;

use crate::accounting::connections::Connections;
use crate::accounting::hash_chain::HashChain;
use crate::accounting::sample::RowSums;
use crate::clock::Clock;
use crate::config::plan::RunPlan;
use crate::coordinator::fidelity::Watch;
use crate::coordinator::model_task::ModelTask;
use crate::coordinator::pace::Pace;
use crate::coordinator::presence::Present;
use crate::reporting::history::History;
use crate::state_machine::{Millis, State};
use crate::storage::blobs::Blobs;
use crate::storage::store::RunStore;
use crate::telemetry::event::Waiting;
use crate::telemetry::events::Events;
use crate::telemetry::trace::Tracer;

/// The state of the run, and everything that changes it.
#[derive(Debug)]
pub(crate) struct Coordinator {
    pub(crate) plan: Arc<RunPlan>,
    pub(crate) parameters: usize,
    pub(crate) state: Arc<State>,
    pub(crate) shown: watch::Sender<Arc<State>>,
    pub(crate) store: RunStore,
    pub(crate) blobs: Blobs,
    pub(crate) model_task: ModelTask,
    pub(crate) traffic: Arc<Connections>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    pub(crate) present: Present,
    /// The hash chain of what was recorded since the newest round closed.
    pub(crate) chain: HashChain,
    /// For displays only.
    pub(crate) history: History,
    pub(crate) wake: Option<Millis>,
    /// Lines about each client since the round opened.
    pub(crate) said: BTreeMap<ClientId, u32>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) tracer: Tracer,
    /// Sums of the durable ledger rows.
    pub(crate) booked: RowSums,
    /// Bytes up and down in the rows of earlier processes.
    pub(crate) before: (u64, u64),
    /// Sums of the ledger's tail.
    pub(crate) kept: RowSums,
    pub(crate) pace: Pace,
    /// For reports and warnings only.
    pub(crate) fidelity: Watch,
}
