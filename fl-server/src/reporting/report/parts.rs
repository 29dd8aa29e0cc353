//! Each client's part in each round, while a report is being built.

use std::collections::BTreeMap;

use fl_proto::ClientId;
use fl_report::Participation;

use crate::clock::{Millis, seconds};

/// The name of connections that never identified themselves.
const NOBODY: &str = "-";

/// Clients in rounds.
#[derive(Debug, Default)]
pub(super) struct Parts(BTreeMap<u64, InRound>);

/// The clients of one round. The empty name is for connections that never identified themselves.
#[derive(Debug, Default)]
pub(super) struct InRound {
    round: u64,
    parts: BTreeMap<Option<ClientId>, Part>,
}

/// One client in one round.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) line: Participation,
    /// When its update was accepted, until the round closes.
    pub(super) taken: Option<Millis>,
}

impl Parts {
    pub(super) fn round(&mut self, round: u64) -> &mut InRound {
        let parts = self.0.entry(round).or_default();
        parts.round = round;
        parts
    }

    /// By round and name.
    pub(super) fn into_lines(self) -> Vec<Participation> {
        let parts = self.0.into_values().flat_map(|round| round.parts.into_values());
        parts.map(|part| part.line).collect()
    }
}

impl InRound {
    pub(super) fn of(&mut self, client: Option<ClientId>) -> &mut Part {
        self.parts.entry(client).or_insert_with_key(|client| Part {
            line: Participation {
                round: self.round,
                client: client.as_ref().map_or(NOBODY, ClientId::as_str).to_owned(),
                ..Participation::default()
            },
            taken: None,
        })
    }

    /// Closes the round. Returns the seconds that its updates waited for that, summed.
    pub(super) fn waited_until(&mut self, at: Millis) -> f64 {
        let mut waited = 0.0;
        for part in self.parts.values_mut() {
            if let Some(taken) = part.taken.take() {
                part.line.wait_seconds = seconds(at, taken);
                waited += part.line.wait_seconds;
            }
        }
        waited
    }
}
