//! What the checks without the server look at.

use std::path::Path;

use fl_proto::TrainTable;
use serde::Deserialize;
use time::OffsetDateTime;

use crate::client_file::ClientFile;
use crate::error::Error;
use crate::named::Learners;

/// What is checked.
pub(super) struct Subject<'a> {
    pub(super) file: &'a ClientFile,
    pub(super) learners: &'a dyn Learners,
    pub(super) path: &'a Path,
    pub(super) now: OffsetDateTime,
    /// Steps of a dry run of each task.
    pub(super) steps: Option<DryRun>,
}

/// Steps from a learner's own first weights.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DryRun {
    #[serde(skip)]
    pub(super) steps: u32,
    /// The only task; `None`: all.
    pub(super) task: Option<String>,
    #[serde(default)]
    pub(super) train: TrainTable,
}

impl DryRun {
    /// With task and `[train]` of a run.toml, whose task `file` must have.
    pub(super) fn of_run(path: &Path, file: &ClientFile) -> Result<Self, Error> {
        let wrong = |why: String| Error::Config(format!("{}: {}", path.display(), why.trim_end()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot read: {error}")))?;
        let run: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match &run.task {
            Some(task) if file.tasks.contains_key(task) => Ok(run),
            task => Err(wrong(format!(
                "client.toml has no [tasks.{}]",
                task.as_deref().unwrap_or("NAME")
            ))),
        }
    }
}
