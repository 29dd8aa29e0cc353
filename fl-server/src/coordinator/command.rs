//! What calls and the admin address ask of the coordinator.

use fl_proto::{ClientId, Departure, EvaluationReport, FramePart, SectionFidelity, UpdateReply};
use tokio::sync::oneshot;

use crate::coordinator::change::Change;
use crate::reporting::moment::Moment;
use crate::state_machine::Accepted;
use crate::storage::blobs::Received;
use crate::storage::disk::DiskError;
use crate::telemetry::event::{OpenRound, Waiting};

/// What the calls ask of the coordinator.
#[derive(Debug)]
pub(crate) enum Command {
    /// A client began to watch.
    Arrived(ClientId),
    /// One of its watch streams ended.
    Left(ClientId),
    /// It says that it will not answer.
    Leaves { client: ClientId, departure: Departure },
    /// A verified update.
    Update(Box<Submitted>),
    /// An evaluation.
    Evaluation {
        client: ClientId,
        report: EvaluationReport,
        reply: oneshot::Sender<bool>,
    },
    /// The frame of the whole model; `None` if it has moved on from `version`.
    Snapshot {
        version: u64,
        reply: oneshot::Sender<Option<FramePart>>,
    },
    /// The disk failed outside of the store: the server must stop before it promises more.
    Broken(DiskError),
    /// The operator changes the course of the run; answered with what has changed, or why nothing has.
    Change {
        change: Change,
        reply: oneshot::Sender<Result<String, String>>,
    },
    /// The clients that are watching, and whom the run waits for.
    Present { reply: oneshot::Sender<Attendance> },
    /// The run and its books now.
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

/// Who is there, and whom the run waits for.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    pub(crate) present: Vec<ClientId>,
    /// If no round is open.
    pub(crate) waiting: Option<Waiting>,
    /// If one is open and takes updates.
    pub(crate) round: Option<OpenRound>,
}
