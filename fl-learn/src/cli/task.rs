//! The task of a client.toml whose learner a command uses.

use std::path::PathBuf;

use fl_client::{ClientFile, DeviceChoice, Error, LearnerEntry};

use crate::registry::{Registry, Task};

/// Options that name a task.
#[derive(Debug, clap::Args)]
pub(super) struct TaskArgs {
    /// Take learner and data from a task of this client.toml.
    #[arg(long)]
    config: PathBuf,
    /// The task; may be left out if there is only one.
    #[arg(long)]
    task: Option<String>,
}

impl TaskArgs {
    /// Reads the task, and where it computes.
    pub(super) fn named(&self, registry: &Registry, trainer: &str) -> Result<(Task, DeviceChoice), Error> {
        let (file, task) = ClientFile::read_offline(&self.config, registry, self.task.as_deref())?;
        let config = self.config.display();
        let entry = &file.tasks[&task];
        let LearnerEntry::Named(learner) = &entry.learner else {
            return Err(Error::Config(format!(
                "{config}: task `{task}` has a trainer, {trainer}"
            )));
        };
        let found = registry.task(learner, entry.data.as_ref(), &file.folder);
        let found =
            found.map_err(|wrong| Error::Config(format!("{config}: `tasks.{task}.{}`: {}", wrong.key, wrong.why)))?;
        Ok((found, file.device))
    }
}
