//! What each record says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::{Digest, Stages};
use fl_proto::{ClientId, EvaluationReport, Metrics};
use serde::{Deserialize, Serialize, Serializer};

use crate::clock::Millis;
use crate::storage::record::limited::Limited;

/// An accepted update: its frame is durable under `digest`, and it counts in its round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    pub digest: Digest,
    pub len: u64,
    /// Examples trained on: the weight in the average.
    pub examples: u64,
    pub loss: f64,
    pub train_ms: u64,
    pub encode_ms: u64,
    /// Bytes after each stage of compression.
    pub stages: Stages,
    pub at: Millis,
    /// Further figures of the training, as the client claims them.
    pub metrics: Arc<Metrics>,
}

/// How an upload of a whole update went, as the server saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Microseconds from the task's way to the client to the first byte of the upload.
    pub wait: u64,
    /// Bytes on the socket after the first of them were read.
    pub bytes: u64,
    /// Microseconds in which these arrived.
    pub micros: u64,
}

/// A client's evaluation of a model version on its own held-out examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientEvaluation {
    /// At least 1.
    pub examples: u64,
    /// Mean loss over them.
    pub loss: f64,
    /// Examples classified correctly; `None` if the client's model does not classify.
    pub correct: Option<f64>,
    /// Whether `loss` is of tokens, so that its exponential is a perplexity.
    pub language: bool,
    /// Further figures of the evaluation, as the client claims them.
    pub metrics: Arc<Metrics>,
    pub at: Millis,
}

impl ClientEvaluation {
    pub fn new(report: EvaluationReport, at: Millis) -> Self {
        Self {
            examples: report.examples,
            loss: report.loss,
            correct: report.correct,
            language: report.language,
            metrics: report.metrics,
            at,
        }
    }
}

/// A model update, and the version that it made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RecordedStep {
    /// Digest of its frame.
    pub frame: Digest,
    pub frame_len: u64,
    pub stages: Stages,
    /// Digest of the model after the round.
    pub model: Digest,
}

/// Microseconds below which the delays of the server itself hide those of a link.
const LEAST_MICROS: u64 = 1_000;
/// Fewer bytes count only if they took [`LONG_MICROS`]: they may wait together in a buffer.
const LEAST_BYTES: u64 = 16 * 1024;
/// Microseconds after which any number of bytes tells how slow a link is.
const LONG_MICROS: u64 = 20_000;

impl Transfer {
    /// Whether this tells the bandwidth of a link, and not only how long the server took to read.
    pub fn shows_link(&self) -> bool {
        let is_long = self.bytes > 0 && self.micros >= LONG_MICROS;
        is_long || (self.bytes >= LEAST_BYTES && self.micros >= LEAST_MICROS)
    }
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
            metrics: Arc::default(),
        }
    }
}

impl Record {
    /// The time of the record, if it has one.
    pub fn at(&self) -> Option<Millis> {
        match self {
            Self::Gathered { since } => *since,
            Self::UpdateAccepted { update, .. } => Some(update.at),
            Self::EvaluationAccepted { evaluation, .. } => Some(evaluation.at),
            Self::EvaluationOpened { .. } => None,
            Self::Started { at, .. }
            | Self::RoundOpened { at, .. }
            | Self::MembersReplaced { at, .. }
            | Self::BudgetsSet { at, .. }
            | Self::BandwidthsSet { at, .. }
            | Self::UploadMeasured { at, .. }
            | Self::RoundClosing { at, .. }
            | Self::RoundClosed { at, .. }
            | Self::RunDone { at }
            | Self::RunFailed { at, .. }
            | Self::RolledBack { at, .. }
            | Self::Excluded { at, .. }
            | Self::Resumed { at, .. } => Some(*at),
        }
    }
}

/// A durable change of a [`State`](crate::state_machine::State). Its bytes begin with its place in this list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The run begins. The server writes this record first, once the initial model is durable.
    Started {
        /// Digest of the plan ([`RunPlan::digest`](crate::config::plan::RunPlan::digest)).
        plan: Digest,
        /// Digest of the model of version 0.
        model: Digest,
        at: Millis,
    },
    /// Between rounds, the number of connected clients reached the minimum, or fell below it again.
    Gathered {
        /// When it was reached; `None` if it fell below.
        since: Option<Millis>,
    },
    /// A round opens, or opens again with another cohort.
    RoundOpened {
        round: u64,
        /// 1 for the first; later attempts keep the updates already accepted.
        attempt: u32,
        cohort: BTreeSet<ClientId>,
        /// Number of clients connected.
        present: u32,
        at: Millis,
        /// When the attempt ends without enough answers.
        deadline: Millis,
    },
    /// Other clients are asked in place of absent members of the open round. The absent ones stay in the cohort: their
    /// updates still count.
    MembersReplaced {
        round: u64,
        /// Members that the round no longer waits for.
        absent: BTreeSet<ClientId>,
        /// The same number of clients, asked in their place.
        by: BTreeSet<ClientId>,
        at: Millis,
    },
    /// Clients of the open round have budgets of their own.
    BudgetsSet {
        round: u64,
        /// Most bytes of an update's frame, by client.
        budgets: BTreeMap<ClientId, u64>,
        at: Millis,
    },
    /// Clients of the open round are handed out the bandwidths of their links.
    BandwidthsSet {
        round: u64,
        /// Rate of a client's uploads in millionths of the median of the cohort, by client.
        bandwidths: BTreeMap<ClientId, u32>,
        at: Millis,
    },
    /// An update counts in its round.
    UpdateAccepted {
        round: u64,
        client: ClientId,
        update: Accepted,
    },
    /// How the upload of an accepted update went.
    UploadMeasured {
        round: u64,
        client: ClientId,
        transfer: Transfer,
        at: Millis,
    },
    /// A client is excluded from the open round: its update does not count, and the round does not ask it again.
    Excluded {
        round: u64,
        client: ClientId,
        at: Millis,
    },
    /// The round accepts no further update.
    RoundClosing {
        round: u64,
        at: Millis,
    },
    /// The round's updates became a model update, and that a new model version.
    RoundClosed {
        /// Also the version of the new model.
        round: u64,
        step: RecordedStep,
        /// Claims of the round that count for less.
        limited: Vec<Limited>,
        at: Millis,
    },
    /// A client evaluated a version.
    EvaluationAccepted {
        version: u64,
        client: ClientId,
        evaluation: ClientEvaluation,
    },
    /// The evaluation of the last model begins.
    EvaluationOpened {
        version: u64,
        asked: BTreeSet<ClientId>,
        /// When the server stops waiting for them.
        until: Millis,
    },
    /// The model goes back to an older version under the next version number: no number ever names two models. An open round
    /// and its updates are abandoned.
    RolledBack {
        /// The new version: one more than the newest.
        version: u64,
        /// The version whose model it has.
        to: u64,
        model: Digest,
        at: Millis,
    },
    /// The server restarted. A failed run waits for clients again; an open round or evaluation gets its full time again.
    Resumed {
        at: Millis,
        /// New deadline of the interrupted round or evaluation.
        until: Millis,
    },
    RunDone {
        at: Millis,
    },
    RunFailed {
        /// The round that could not be closed.
        round: u64,
        /// Names the clients that were missing.
        #[serde(serialize_with = "cut")]
        why: String,
        at: Millis,
    },
}

/// Longest text in bytes; the rest is left out.
const MAX_TEXT: usize = 4_096;

fn cut<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text[..text.floor_char_boundary(MAX_TEXT)])
}

/// Records for tests. Digests are those of no bytes.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) fn started() -> Record {
        let digest = Digest::of(b"");
        let (plan, model, at) = (digest, digest, 0);
        Record::Started { plan, model, at }
    }

    pub(crate) fn opened(round: u64, attempt: u32, names: &[&str], at: Millis, deadline: Millis) -> Record {
        Record::RoundOpened {
            round,
            attempt,
            cohort: names.iter().map(|name| name.parse().unwrap()).collect(),
            present: names.len() as u32,
            at,
            deadline,
        }
    }

    pub(crate) fn closing(round: u64, at: Millis) -> Record {
        Record::RoundClosing { round, at }
    }

    /// Three of four examples are right.
    pub(crate) fn evaluated(version: u64, client: &ClientId) -> Record {
        Record::EvaluationAccepted {
            version,
            client: client.clone(),
            evaluation: ClientEvaluation {
                examples: 4,
                loss: 0.5,
                correct: Some(3.0),
                language: false,
                metrics: Arc::default(),
                at: 0,
            },
        }
    }

    pub(crate) fn closed(round: u64, at: Millis) -> Record {
        let digest = Digest::of(b"");
        Record::RoundClosed {
            round,
            step: RecordedStep {
                frame: digest,
                frame_len: 1,
                stages: Stages::default(),
                model: digest,
            },
            limited: Vec::new(),
            at,
        }
    }
}
