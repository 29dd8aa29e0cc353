//! The sources of the page and the metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::accounting::connections::Connections;
use crate::accounting::edge::Edge;
use crate::clock::Clock;
use crate::config::live::LiveSettings;
use crate::config::plan::RunPlan;
use crate::coordinator::command::Command;
use crate::identity::Certificates;
use crate::registry::actor::RegistryHandle;
use crate::rpc::admission::Admission;
use crate::state_machine::State;
use crate::storage::store::Store;
use crate::telemetry::status::LiveStatus;

/// The sources of the page and the metrics.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) store: Store,
    pub(crate) plan: Arc<RunPlan>,
    pub(crate) state: watch::Receiver<Arc<State>>,
    pub(crate) commands: mpsc::Sender<Command>,
    /// True when the server is about to stop.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) traffic: Arc<Connections>,
    /// Connections and calls at the ports.
    pub(crate) edge: Arc<Edge>,
    pub(crate) status: Arc<LiveStatus>,
    /// Values of the model.
    pub(crate) parameters: usize,
    pub(crate) clock: Clock,
    /// Decides about operators' certificates.
    pub(crate) admission: Admission,
    /// Notes when an operator read the page with a certificate.
    pub(crate) registry: RegistryHandle,
    /// Those of the authority, the server and the page.
    pub(crate) certificates: watch::Receiver<Arc<Certificates>>,
    pub(crate) settings: watch::Receiver<Arc<LiveSettings>>,
}

/// Interval of the refresh loop.
pub(super) const TICK: Duration = Duration::from_secs(1);
