//! Each client's part in each round, while a report is being built.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::ClientId;
use fl_report::Participation;

use crate::clock::{Millis, seconds};

/// The name of connections that never identified themselves.
const NOBODY: &str = "-";

/// By round and client; without a client, connections that never identified themselves.
#[derive(Debug, Default)]
pub(super) struct Parts(BTreeMap<(u64, Option<ClientId>), Part>);

#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) line: Participation,
    /// When its update was accepted, until the round closes.
    pub(super) taken: Option<Millis>,
}

impl Parts {
    pub(super) fn of(&mut self, round: u64, client: Option<ClientId>) -> &mut Part {
        self.0
            .entry((round, client))
            .or_insert_with_key(|(round, client)| Part {
                line: Participation {
                    round: *round,
                    client: client.as_ref().map_or(NOBODY, ClientId::as_str).to_owned(),
                    ..Participation::default()
                },
                taken: None,
            })
    }

    pub(super) fn asks(&mut self, round: u64, clients: &BTreeSet<ClientId>) {
        for client in clients {
            self.of(round, Some(client.clone())).line.asked = true;
        }
    }

    /// Closes the round. Returns the seconds that its updates waited for that, summed.
    pub(super) fn waited_until(&mut self, round: u64, at: Millis) -> f64 {
        let mut waited = 0.0;
        let parts = self
            .0
            .range_mut((round, None)..)
            .take_while(|((of, _), _)| *of == round);
        for (_, part) in parts {
            if let Some(taken) = part.taken.take() {
                part.line.wait_seconds = seconds(at, taken);
                waited += part.line.wait_seconds;
            }
        }
        waited
    }

    /// By round and name.
    pub(super) fn into_lines(self) -> Vec<Participation> {
        self.0.into_values().map(|part| part.line).collect()
    }
}
