//! The task of a client.toml whose built-in learner a command uses.

use std::path::PathBuf;

use crate::client_file::{ClientFile, TaskEntry};
use crate::data::DataSource;
use crate::error::Error;
use crate::learners::{DeviceChoice, LearnerChoice};

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

/// What a task says of its built-in learner.
pub(super) struct BuiltIn {
    pub(super) learner: LearnerChoice,
    pub(super) data: DataSource,
    pub(super) device: DeviceChoice,
}

impl TaskArgs {
    /// Reads the task.
    ///
    /// # Errors
    /// As [`ClientFile::read_offline`]; if the task has a trainer, about which the message says `trainer`.
    pub(super) fn built_in(&self, trainer: &str) -> Result<BuiltIn, Error> {
        let (file, task) = ClientFile::read_offline(&self.config, self.task.as_deref())?;
        let Some((learner, data)) = file.tasks.get(&task).and_then(TaskEntry::built_in) else {
            let config = self.config.display();
            return Err(Error::Config(format!(
                "{config}: task `{task}` has a trainer, {trainer}"
            )));
        };
        Ok(BuiltIn {
            learner: learner.clone(),
            data: data.clone(),
            device: file.device,
        })
    }
}
