//! What a client remembers from one connection to the next. None of it is on disk: after a restart, the server's answers
//! and the state folder hold all that matters.

use std::sync::Arc;
use std::time::Duration;

use fl_proto::{EvaluationReport, JoinRequest, Joined, UpdateId};

use super::training::Training;
use crate::class_names::ClassNames;
use crate::config::ClientConfig;
use crate::error::Error;
use crate::rpc::KnownRun;

/// State that outlives a connection.
#[derive(Debug, Default)]
pub(super) struct SessionState {
    pub(super) tasks: Vec<String>,
    /// A task whose data was read, and the classes of that data.
    pub(super) classes: Option<(String, Option<ClassNames>)>,
    /// The digests in the last `Join` that the server took.
    pub(super) said: Vec<u64>,
    /// Whether the server has answered since this was last cleared.
    pub(super) answered: bool,
    pub(super) joined: Option<Arc<Joined>>,
    /// What the last reply to `Join` said, so that the next need not say it again.
    pub(super) told: Option<KnownRun>,
    pub(super) training: Option<Training>,
    /// A training was stopped at a moment when it may already have encoded an update.
    pub(super) unsettled: bool,
    /// Round and attempt for which nothing more is to be done: the update is acknowledged, or the learner failed.
    pub(super) settled: Option<(u64, u32)>,
    /// Bytes of the last update.
    pub(super) frame: Option<u64>,
    /// How long the last training took, without pauses.
    pub(super) trained: Option<Duration>,
    /// Model version that was evaluated last.
    pub(super) evaluated: Option<u64>,
    /// The evaluation of the model of a training, which travels with its update.
    pub(super) evaluation: Option<EvaluationReport>,
    /// How far the server's clock was ahead at the last renewal. Without it, a device with a fast clock would renew at once again.
    pub(super) clock_offset: time::Duration,
    /// Round and selection of the last `Event::Round`.
    pub(super) announced: Option<(u64, bool)>,
    /// The last `RoundState.message`, which is logged once.
    pub(super) message: String,
}

impl SessionState {
    pub(super) fn new(tasks: Vec<String>) -> Self {
        Self {
            tasks,
            ..Self::default()
        }
    }

    /// What the client says when it joins. `pending`: the update that it has pending.
    pub(super) fn join_request(&self, config: &ClientConfig, pending: Option<UpdateId>) -> JoinRequest {
        JoinRequest {
            tasks: self.tasks.clone(),
            pending,
            software: env!("CARGO_PKG_VERSION").to_owned(),
            device: config.device.clone(),
            known: self.told.as_ref().map(|told| told.digest),
            classes: self
                .tasks
                .iter()
                .map(|task| match &self.classes {
                    Some((known, Some(classes))) if known == task => classes.digest,
                    _ => 0,
                })
                .collect(),
        }
    }

    /// Why the client cannot join: with the names of its classes, which the server knows by their digest alone.
    pub(super) fn not_joined(&self, error: Error) -> Error {
        let classes = self.classes.as_ref().and_then(|(_, classes)| classes.as_ref());
        match (error, classes) {
            (Error::OtherTask(why), Some(classes)) if why.contains(&format!("{:016x}", classes.digest)) => {
                Error::OtherTask(format!("{why}; this client has {}", classes.shown))
            }
            (error, _) => error,
        }
    }

    /// Forgets everything about a run that the client is no longer part of.
    pub(super) fn leave_run(&mut self) {
        *self = Self {
            tasks: std::mem::take(&mut self.tasks),
            classes: self.classes.take(),
            said: std::mem::take(&mut self.said),
            answered: self.answered,
            clock_offset: self.clock_offset,
            told: self.told.take(),
            ..Self::default()
        };
    }
}
