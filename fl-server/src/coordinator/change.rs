//! Changes that an operator may make to a run: roll the model back to an older version, or exclude a client from the
//! open round. Each is one record. On a running server the coordinator writes it, on a stopped one the command line.

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::reporting::inspect::{self, InspectError};
use crate::state_machine::State;
use crate::storage::record::Record;
use crate::storage::store::Store;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Change {
    RollBack { to: u64 },
    Exclude { client: String },
}

impl Change {
    /// The record of the change.
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
pub(crate) fn change(store: &Store, run: Option<&str>, change: &Change, now: Millis) -> Result<String, InspectError> {
    let run = inspect::chosen(store, run)?;
    let mut state = State::new();
    for record in run.records() {
        state.apply(&record?)?;
    }
    let record = change.record(&state, now).map_err(InspectError::NotThere)?;
    state.apply(&record)?;
    run.append(std::slice::from_ref(&record), &[])?;
    Ok(said(&record))
}
