//! Changes that an operator may make to a run: roll the model back to an older version, or exclude a client from the
//! open round. Each is one record. On a running server the coordinator writes it, on a stopped one the command line.

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::reporting::inspect::{self, InspectError};
use crate::state_machine::State;
use crate::storage::record::Record;
use crate::storage::store::Store;

/// A change to a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Change {
    /// Rolls the model back to version `to`.
    RollBack { to: u64 },
    /// Excludes a client from the open round.
    Exclude { client: String },
}

impl Change {
    /// The record of the change.
    ///
    /// # Errors
    /// Why the change is not possible now.
    pub(crate) fn record(&self, state: &State, now: Millis) -> Result<Record, String> {
        match self {
            Self::RollBack { to } => state.roll_back(*to, now),
            Self::Exclude { client } => {
                let client: ClientId = client.parse().map_err(|e| format!("`{client}`: {e}"))?;
                state.exclude(&client, now)
            }
        }
    }
}

/// The effect of a change, as a sentence.
pub(crate) fn said(record: &Record) -> String {
    match record {
        Record::RolledBack { version, to, .. } => {
            format!("rolled back to version {to}, which is version {version} now: the rounds after it are taken back")
        }
        Record::Excluded { round, client, .. } => format!("{client} is excluded from round {round}"),
        _ => String::new(),
    }
}

/// Changes a run that no server is serving. Without a name, the only run.
///
/// # Errors
/// `NotThere` if the change is not possible; those of the records and the store.
pub(crate) fn change(store: &Store, run: Option<&str>, change: &Change, now: Millis) -> Result<String, InspectError> {
    let run = inspect::chosen(store, run)?;
    let mut state = State::new();
    let corrupt = |e: crate::state_machine::ImpossibleRecord| InspectError::Corrupt(e.to_string());
    for record in run.records() {
        state.apply(&record?).map_err(corrupt)?;
    }
    let record = change.record(&state, now).map_err(InspectError::NotThere)?;
    state.apply(&record).map_err(corrupt)?;
    run.append(std::slice::from_ref(&record), &[])?;
    Ok(said(&record))
}
