//! What each record says.

use std::collections::BTreeSet;

use fl_compress::{Digest, Stages};
use fl_proto::ClientId;

use crate::clock::Millis;

/// An update that was taken: its frame is durable under `digest`, and it counts in its round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accepted {
    /// Digest of the frame.
    pub digest: Digest,
    /// Bytes of the frame.
    pub len: u64,
    /// Examples trained on: the weight in the average.
    pub examples: u64,
    /// Mean training loss.
    pub loss: f64,
    /// Milliseconds of training.
    pub train_ms: u64,
    /// Milliseconds of encoding.
    pub encode_ms: u64,
    /// Bytes after each stage of compression.
    pub stages: Stages,
    /// When it was taken.
    pub at: Millis,
}

#[cfg(test)]
impl Accepted {
    /// The smallest update whose frame has this digest.
    pub(crate) fn sample(digest: Digest) -> Self {
        Self {
            digest,
            len: 1,
            examples: 1,
            loss: 0.0,
            train_ms: 0,
            encode_ms: 0,
            stages: Stages::default(),
            at: 0,
        }
    }
}

impl Record {
    /// When it was written, if it says so.
    pub fn at(&self) -> Option<Millis> {
        match self {
            Self::Gathered { since } => *since,
            Self::UpdateAccepted { update, .. } => Some(update.at),
            Self::EvaluationOpened { .. } => None,
            Self::Started { at, .. }
            | Self::RoundOpened { at, .. }
            | Self::MembersReplaced { at, .. }
            | Self::RoundClosing { at, .. }
            | Self::RoundClosed { at, .. }
            | Self::EvaluationAccepted { at, .. }
            | Self::RunDone { at }
            | Self::RunFailed { at, .. }
            | Self::RolledBack { at, .. }
            | Self::Excluded { at, .. }
            | Self::Resumed { at, .. } => Some(*at),
        }
    }
}

/// Everything that changes a [`State`](crate::state_machine::State).
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The run begins. The caller of the engine writes it first, once the initial model is durable.
    Started {
        /// Identity of the experiment.
        plan: Digest,
        /// Digest of the model of version 0.
        model: Digest,
        /// When.
        at: Millis,
    },
    /// While waiting, the fewest clients needed came together, or fell apart again.
    Gathered {
        /// Since when they are together; `None` if no longer.
        since: Option<Millis>,
    },
    /// A round opens, or opens again with another cohort.
    RoundOpened {
        /// The round, from 1.
        round: u64,
        /// 1 for the first; later attempts keep the updates already accepted.
        attempt: u32,
        /// Clients asked.
        cohort: BTreeSet<ClientId>,
        /// Clients that were connected.
        present: u32,
        /// When.
        at: Millis,
        /// When it is given up.
        deadline: Millis,
    },
    /// Others are asked in place of members of the open round that are absent. The absent ones stay in the cohort: their
    /// updates still count.
    MembersReplaced {
        /// The round.
        round: u64,
        /// Members that are not waited for any more.
        absent: BTreeSet<ClientId>,
        /// As many clients that are asked in their place.
        by: BTreeSet<ClientId>,
        /// When.
        at: Millis,
    },
    /// An update counts in its round.
    UpdateAccepted {
        /// The round.
        round: u64,
        /// Whose.
        client: ClientId,
        /// What.
        update: Accepted,
    },
    /// No further update is taken in this round.
    RoundClosing {
        /// The round.
        round: u64,
        /// When.
        at: Millis,
        /// Whether the plan's limits apply to its updates. False in records of a program that had none.
        limited: bool,
    },
    /// The round's updates became a step, and the step a new model version.
    RoundClosed {
        /// The round: the version of the new model.
        round: u64,
        /// Digest of the step's frame.
        frame: Digest,
        /// Its bytes.
        frame_len: u64,
        /// Its bytes after each stage.
        stages: Stages,
        /// Digest of the new model.
        model: Digest,
        /// When.
        at: Millis,
    },
    /// A client has evaluated a version. Without an example, what it reported cannot be true and does not count.
    EvaluationAccepted {
        /// Model version evaluated.
        version: u64,
        /// Whose.
        client: ClientId,
        /// Held-out examples.
        examples: u64,
        /// Mean loss over them.
        loss: f64,
        /// How many were classified correctly.
        correct: u64,
        /// When.
        at: Millis,
    },
    /// The last model is handed out for evaluation.
    EvaluationOpened {
        /// Its version.
        version: u64,
        /// Clients asked.
        asked: BTreeSet<ClientId>,
        /// When waiting for them ends.
        until: Millis,
    },
    /// The run is over.
    RunDone {
        /// When.
        at: Millis,
    },
    /// The run gave up.
    RunFailed {
        /// The round that could not be closed.
        round: u64,
        /// Who was missing.
        why: String,
        /// When.
        at: Millis,
    },
    /// The model goes back to an older version. The next version number is given to it, so that no number ever stands for two
    /// models. An open round, with what was accepted in it, is abandoned.
    RolledBack {
        /// The new version: one more than the newest.
        version: u64,
        /// The version whose model it is.
        to: u64,
        /// Digest of that model.
        model: Digest,
        /// When.
        at: Millis,
    },
    /// A client has no more part in the open round: its update is not counted, and it is not asked again in this round.
    Excluded {
        /// The round.
        round: u64,
        /// Whom.
        client: ClientId,
        /// When.
        at: Millis,
    },
    /// The server was started again. A failed run waits for clients again; what was running gets its time again.
    Resumed {
        /// When.
        at: Millis,
        /// New deadline of the round or evaluation that was interrupted.
        until: Millis,
    },
}
