//! A task: its learner, and the data of a built-in one.

use serde::Deserialize;

use super::learner_entry::LearnerEntry;
use crate::data::DataSource;
use crate::learners::LearnerChoice;

/// One `[tasks.NAME]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEntry {
    /// A built-in learner or a trainer.
    pub learner: LearnerEntry,
    /// The examples of a built-in learner.
    pub data: Option<DataSource>,
}

impl TaskEntry {
    pub(super) fn check(&self) -> Result<(), String> {
        self.learner.check().map_err(|e| format!(".learner{e}"))?;
        match (&self.learner, &self.data) {
            (LearnerEntry::BuiltIn(_), None) => Err(".data` is missing: which examples the learner has".to_owned()),
            (LearnerEntry::Trainer(_), Some(_)) => {
                Err(".data`: a trainer reads its own data; delete this key".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The built-in learner and its examples; `None` for a trainer.
    pub(crate) fn built_in(&self) -> Option<(&LearnerChoice, &DataSource)> {
        match (&self.learner, &self.data) {
            (LearnerEntry::BuiltIn(learner), Some(data)) => Some((learner, data)),
            _ => None,
        }
    }
}
