//! A task as client.toml has it: its learner, and the examples of one that is named.

use serde::Deserialize;
use toml::Value;

use super::learner_entry::LearnerEntry;

/// One `[tasks.NAME]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEntry {
    /// The name of a learner, or a trainer.
    pub learner: LearnerEntry,
    /// The examples of a named learner.
    pub data: Option<Value>,
}

impl TaskEntry {
    pub(super) fn check(&self) -> Result<(), String> {
        match (&self.learner, &self.data) {
            (LearnerEntry::Named(_), None) => Err(".data` is missing: which examples the learner has".to_owned()),
            (LearnerEntry::Trainer(_), Some(_)) => {
                Err(".data`: a trainer reads its own data; delete this key".to_owned())
            }
            (LearnerEntry::Trainer(entry), None) => entry.check().map_err(|e| format!(".learner{e}")),
            (LearnerEntry::Named(_), Some(_)) => Ok(()),
        }
    }
}
