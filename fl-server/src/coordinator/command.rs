//! Requests to the coordinator, from calls and from the admin address.

use fl_proto::{ClientId, Departure, EvaluationReport, FramePart, SectionFidelity, UpdateReply};
use tokio::sync::oneshot;

use crate::coordinator::change::Change;
use crate::reporting::moment::Moment;
use crate::state_machine::Accepted;
use crate::storage::blobs::Received;
use crate::storage::disk::DiskError;
use crate::telemetry::event::{OpenRound, Waiting};

/// A request to the coordinator.
#[derive(Debug)]
pub(crate) enum Command {
    /// A client opened a watch stream.
    Arrived(ClientId),
    /// One of a client's watch streams ended.
    Left(ClientId),
    /// A client announces that it will not answer.
    Leaves { client: ClientId, departure: Departure },
    /// A verified update.
    Update(Box<Submitted>),
    /// The reply: whether the evaluation counts.
    Evaluation {
        client: ClientId,
        report: EvaluationReport,
        reply: oneshot::Sender<bool>,
    },
    /// The frame of the whole model. The reply is `None` if a newer version exists.
    Snapshot {
        version: u64,
        reply: oneshot::Sender<Option<FramePart>>,
    },
    /// The disk failed outside of the store: the server must stop before it acknowledges anything else.
    Broken(DiskError),
    /// A change by the operator. The reply is its effect, or why nothing has changed.
    Change {
        change: Change,
        reply: oneshot::Sender<Result<String, String>>,
    },
    /// Which clients are connected, and which of them the run waits for.
    Present { reply: oneshot::Sender<Attendance> },
    /// The run and its ledger now.
    Moment { reply: oneshot::Sender<Moment> },
}

/// A verified update whose frame is durable, but not a blob yet.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) client: ClientId,
    pub(crate) round: u64,
    pub(crate) attempt: u32,
    pub(crate) update: Accepted,
    pub(crate) frame: Received,
    /// The first tensor and the figures of each section of the frame; empty if the client sent no figures.
    pub(crate) fidelity: Vec<(u32, SectionFidelity)>,
    /// An error says why the update can be neither accepted nor refused yet.
    pub(crate) reply: oneshot::Sender<Result<UpdateReply, &'static str>>,
}

/// Which clients are connected, and which of them the run waits for.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    pub(crate) present: Vec<ClientId>,
    /// If no round is open.
    pub(crate) waiting: Option<Waiting>,
    /// If a round is open and takes updates.
    pub(crate) round: Option<OpenRound>,
}
