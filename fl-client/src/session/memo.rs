//! What a client remembers from one connection to the next. Nothing of it is on disk: after a restart the server's answers
//! and the state folder say all that matters.

use std::sync::Arc;

use fl_proto::Joined;

use super::training::Training;

/// What outlives a connection.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// Names of the tasks that the client can do.
    pub(super) tasks: Vec<String>,
    /// Whether the server answered since this was last cleared.
    pub(super) heard: bool,
    pub(super) joined: Option<Arc<Joined>>,
    pub(super) training: Option<Training>,
    /// A training was given up at a moment when it may have made a frame.
    pub(super) unsettled: bool,
    /// Round and attempt for which nothing more is done: the update is settled, or the learner failed.
    pub(super) spent: Option<(u64, u32)>,
    /// Version that was evaluated last.
    pub(super) evaluated: Option<u64>,
    /// Round of the last `Event::Round`.
    pub(super) announced: Option<(u64, bool)>,
}

impl Memo {
    /// Of a client that can do `tasks` and has not connected yet.
    pub(super) fn of(tasks: Vec<String>) -> Self {
        Self {
            tasks,
            ..Self::default()
        }
    }

    /// Forgets what belonged to a run that is not joined any more.
    pub(super) fn leave_run(&mut self) {
        *self = Self {
            tasks: std::mem::take(&mut self.tasks),
            heard: self.heard,
            ..Self::default()
        };
    }
}
