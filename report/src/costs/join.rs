//! Costs as columns of a table of clients or rounds.

use std::collections::BTreeMap;

use super::{ClientCost, Costs, RoundCost};
use crate::columns::{Column, Line, Table, Values};
use crate::error::Error;

impl Costs {
    /// Adds the columns of [`ClientCost`] to a table with one line a client, or of [`RoundCost`] to one with one line a
    /// round.
    ///
    /// # Errors
    /// `NotKept` for any other table.
    pub fn join(&self, mut table: Table) -> Result<Table, Error> {
        let key = |name: &str| table.column(name).map(|column| &column.values);
        let more = match (key("client"), key("round")) {
            (Some(Values::Texts(clients)), None) => {
                let costs: BTreeMap<&str, &ClientCost> =
                    self.clients.iter().map(|line| (line.client.as_str(), line)).collect();
                let none = ClientCost::default();
                let lines = clients
                    .iter()
                    .map(|client| costs.get(client.as_str()).copied().unwrap_or(&none));
                columns(&lines.collect::<Vec<_>>())
            }
            (None, Some(Values::Integers(rounds))) if table.column("closed").is_some() => {
                let costs: BTreeMap<u64, &RoundCost> = self.rounds.iter().map(|line| (line.round, line)).collect();
                let none = RoundCost::default();
                let lines = rounds.iter().map(|round| costs.get(round).copied().unwrap_or(&none));
                columns(&lines.collect::<Vec<_>>())
            }
            _ => {
                return Err(Error::NotKept(
                    "costs are worked out by client and by round: ask by one of them, or without --by for the whole",
                ));
            }
        };
        table.columns.extend(more);
        Ok(table)
    }
}

/// The columns of costs without the key.
fn columns<L: Line>(lines: &[&L]) -> Vec<Column> {
    let mut out = Vec::new();
    L::columns(lines, &mut out);
    out.drain(..1);
    out
}
