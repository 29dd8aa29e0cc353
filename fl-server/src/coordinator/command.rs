//! Requests to the coordinator, from calls and from the admin address.

use crate::state_machine::{Input, Reply};
use fl_compress::Digest;
use fl_proto::{Availability, ClientId, Departure, FramePart, Role, SectionFidelity};
use tokio::sync::oneshot;

use crate::coordinator::change::Change;
use crate::reporting::moment::Moment;
use crate::storage::blobs::CompleteUpload;
use crate::storage::disk::DiskError;
use crate::telemetry::event::{OpenRound, PausedClient, Waiting};

#[derive(Debug)]
pub(crate) enum Command {
    /// A client opened a watch stream, and says whether it is available.
    Arrived(ClientId, Role, Availability),
    /// A client that watches says whether it is available.
    Available(ClientId, Availability),
    /// One of a client's watch streams ended.
    Left(ClientId),
    /// A client that watched may take part no more: the classes of its data are not the run's.
    Refused(ClientId),
    /// A client announces that it will not answer, and why.
    Leaves(ClientId, Departure, String),
    /// An input of the state machine. The reply follows when its records are durable.
    Decide {
        input: Input,
        reply: oneshot::Sender<Reply>,
    },
    /// An update, as an input of the state machine, with its frame.
    Update {
        input: Input,
        /// Verified and durable, but not a blob yet.
        frame: Box<CompleteUpload>,
        /// The first tensor and the figures of each section of the frame; empty if the client sent no figures.
        fidelity: Vec<(u32, SectionFidelity)>,
        reply: oneshot::Sender<Reply>,
    },
    /// The frame of the whole model. The reply is `None` if a newer version exists.
    Snapshot {
        version: u64,
        reply: oneshot::Sender<Option<FramePart>>,
    },
    /// The kept snapshot with this digest, if there is one.
    KeptSnapshot {
        digest: Digest,
        reply: oneshot::Sender<Option<FramePart>>,
    },
    KeptSnapshots {
        reply: oneshot::Sender<Vec<FramePart>>,
    },
    /// The disk failed outside of the store: the server must stop before it acknowledges anything else.
    Broken(DiskError),
    /// A change by the operator. The reply is its effect, or why nothing has changed.
    Change {
        change: Change,
        reply: oneshot::Sender<Result<String, String>>,
    },
    /// Which clients are connected, and which of them the run waits for.
    Present {
        reply: oneshot::Sender<Attendance>,
    },
    Moment {
        reply: oneshot::Sender<Moment>,
    },
}

/// Which clients are connected, and which of them the run waits for.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    pub(crate) present: Vec<ClientId>,
    /// Those of them that take part in no round for now.
    pub(crate) paused: Vec<PausedClient>,
    /// If no round is open.
    pub(crate) waiting: Option<Waiting>,
    /// If a round is open and takes updates.
    pub(crate) round: Option<OpenRound>,
}
