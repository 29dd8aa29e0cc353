//! The tasks that a client can do: names bound to learners, which are built on first use.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::Error;
use crate::learner::Learner;
use crate::summary;

type Make = Box<dyn FnOnce() -> anyhow::Result<Box<dyn Learner>> + Send>;

/// Learners by task name. A run names its task, and the client trains with the learner bound to that name.
#[derive(Default)]
pub struct Tasks(BTreeMap<String, Slot>);

enum Slot {
    Make(Make),
    Ready(Box<dyn Learner>),
    /// Building the learner failed, for this reason.
    Failed(String),
}

impl Tasks {
    /// A client without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds `task` to a learner that is ready.
    #[must_use]
    pub fn with(mut self, task: impl Into<String>, learner: Box<dyn Learner>) -> Self {
        self.0.insert(task.into(), Slot::Ready(learner));
        self
    }

    /// Binds `task` to a learner that is built on first use, outside the async threads.
    #[must_use]
    pub fn with_lazy(
        mut self,
        task: impl Into<String>,
        make: impl FnOnce() -> anyhow::Result<Box<dyn Learner>> + Send + 'static,
    ) -> Self {
        self.0.insert(task.into(), Slot::Make(Box::new(make)));
        self
    }

    /// Names of the tasks.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// The learner of `task`, if it is built already.
    pub(crate) fn ready(&mut self, task: &str) -> Result<Option<&mut dyn Learner>, Error> {
        if !self.0.contains_key(task) {
            return Err(self.unknown(task));
        }
        Ok(match self.0.get_mut(task) {
            Some(Slot::Ready(learner)) => Some(learner.as_mut()),
            _ => None,
        })
    }

    fn unknown(&self, task: &str) -> Error {
        let known = self.names().join(", ");
        Error::Config(format!("the run's task is `{task}`, but this client has only: {known}"))
    }

    /// The learner of `task`, built now if necessary. May take long: never called from an async task.
    pub(crate) fn learner(&mut self, task: &str) -> Result<&mut dyn Learner, Error> {
        if !self.0.contains_key(task) {
            return Err(self.unknown(task));
        }
        let slot = self
            .0
            .entry(task.to_owned())
            .or_insert_with(|| Slot::Failed("no learner is bound to it".to_owned()));
        if matches!(slot, Slot::Make(_)) {
            let taken = std::mem::replace(slot, Slot::Failed("its learner could not be built".to_owned()));
            if let Slot::Make(make) = taken {
                *slot = match make() {
                    Ok(learner) => Slot::Ready(learner),
                    Err(error) => Slot::Failed(summary::logged(&format!("{error:#}"))),
                };
            }
        }
        match slot {
            Slot::Ready(learner) => Ok(learner.as_mut()),
            Slot::Failed(why) => Err(Error::Learner(format!("task `{task}`: {why}"))),
            Slot::Make(_) => Err(Error::Learner(format!("task `{task}` is being built"))),
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
