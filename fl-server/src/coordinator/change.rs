//! What an operator may change in a run: take the model back to an older version, and exclude a client from the open round.
//! Each is one record; on a running server the coordinator writes it, on a stopped one the command line.

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::reporting::inspect::{self, InspectError};
use crate::state_machine::State;
use crate::storage::record::Record;
use crate::storage::store::Store;

/// A change that an operator asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Change {
    /// Take the model back to version `to`.
    RollBack { to: u64 },
    /// Exclude a client from the open round.
    Exclude { client: String },
}

impl Change {
    /// The record that does it.
    ///
    /// # Errors
    /// Why it cannot be done.
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

/// What a change did, in words.
pub(crate) fn said(record: &Record) -> String {
    match record {
        Record::RolledBack { version, to, .. } => {
            format!("rolled back to version {to}, which is version {version} now: the rounds after it are taken back")
        }
        Record::Excluded { round, client, .. } => format!("{client} is excluded from round {round}"),
        _ => String::new(),
    }
}

/// Changes a run that is not being served; without a name, the only one.
///
/// # Errors
/// `NotThere` if it cannot be done; those of the records and the store.
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
