//! Costs as columns of a table of clients or rounds.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::report::costs::{ClientCost, Costs, RoundCost};
use crate::table::Table;
use crate::table::column::Values;
use crate::table::line::Columns;

impl Costs {
    /// Adds the columns of [`ClientCost`] to a table with one line per client, or those of [`RoundCost`] to a table with one
    /// line per round.
    ///
    /// # Errors
    /// `NotKept` for any other table.
    pub fn join(&self, mut table: Table) -> Result<Table, Error> {
        let key = |name: &str| table.column(name).map(|column| &column.values);
        let more = match (key("client"), key("round")) {
            (Some(Values::Texts(clients)), None) => {
                let costs = self.clients.iter().map(|line| (line.client.as_str(), line)).collect();
                columns(clients.iter().map(String::as_str), &costs, &ClientCost::default())
            }
            (None, Some(Values::Integers(rounds))) if table.column("closed").is_some() => {
                let costs = self.rounds.iter().map(|line| (line.round, line)).collect();
                columns(rounds.iter().copied(), &costs, &RoundCost::default())
            }
            _ => {
                return Err(Error::NotKept(
                    "costs are kept by client and by round: ask by one of them, or without --by for the whole run",
                ));
            }
        };
        // The first column is the key, which the table has.
        table.columns.extend(more.columns.into_iter().skip(1));
        Ok(table)
    }
}

/// The costs of each key, or `none`.
fn columns<K: Ord, L: Columns>(keys: impl Iterator<Item = K> + Clone, costs: &BTreeMap<K, &L>, none: &L) -> Table {
    Table::of(keys.map(|key| costs.get(&key).copied().unwrap_or(none)))
}
