//! What to serve and how, and how serving ended.

use std::path::PathBuf;
use std::sync::Arc;

use fl_compress::Digest;
use fl_proto::Issued;
use fl_proto::trace::Collector;
use fl_report::CostsPlan;
use tokio::sync::mpsc;

use crate::admin::page::listener::Live;
use crate::clock::{self, Wall};
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::storage::disk::Fault;
use crate::telemetry::event::Event;

/// What to serve, and how.
#[derive(Debug)]
pub struct Serve {
    /// Folder of the store, the blobs and the admin socket; made if missing, used by one server at a time.
    pub data: PathBuf,
    /// The run.
    pub plan: RunPlan,
    /// Certificate of the federation's authority, PEM.
    pub authority: String,
    /// The server's certificate and key, PEM.
    pub own: Issued,
    /// List of clients that are not admitted; may be missing.
    pub revoked: PathBuf,
    /// Memory, disk and patience.
    pub tuning: Tuning,
    /// What tells the run from others of its name if it begins now, see `JoinReply.instance`; `None` draws it.
    pub instance: Option<Digest>,
    /// A fault to inject, for tests.
    pub fault: Option<Arc<Fault>>,
    /// Where the page of the run is served, if it is.
    pub live: Option<Live>,
    /// Where events go. Its reader must read: all but `UpdateReceiving` wait for room.
    pub events: Option<mpsc::Sender<Event>>,
    /// Whether to return once the run is over; otherwise clients that come later are still told so.
    pub exit_when_done: bool,
    /// Where traces of rounds are sent; `None` for nowhere.
    pub otlp: Option<Collector>,
    /// The time of day. It is read when serving begins; what it says later moves no deadline.
    pub clock: Wall,
    /// What bytes cost, for the page of the run; `None` for no prices.
    pub costs: Option<CostsPlan>,
}

impl Serve {
    /// The defaults, with the facts that have none. `authority` and `own` are PEM.
    pub fn new(data: PathBuf, plan: RunPlan, authority: String, own: Issued) -> Self {
        let revoked = data.join("revoked");
        let tuning = Tuning::default();
        Self {
            data,
            plan,
            authority,
            own,
            revoked,
            tuning,
            instance: None,
            fault: None,
            live: None,
            events: None,
            exit_when_done: true,
            otlp: None,
            clock: clock::system,
            costs: None,
        }
    }
}

/// How serving ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The run is over.
    Done,
    /// The run gave up; serving it again tries again.
    Failed {
        /// The round.
        round: u64,
        /// Why.
        why: String,
    },
    /// It was told to stop; serving it again continues.
    Stopped,
}

/// Where the run stands when serving has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Newest model version.
    pub version: u64,
    /// Its digest.
    pub model: Digest,
    /// Bytes read from and written to all sockets since this start.
    pub socket: (u64, u64),
}
