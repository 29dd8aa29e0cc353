//! What a run cost in money and carbon.

use serde::{Deserialize, Serialize};

use crate::table::line::{deserialize, line};
use crate::table::serialize;
use crate::table::sums::sums;

sums! {
    /// Bytes and their price, of a run and of the payload of fp32 federated averaging.
    #[derive(Copy)]
    pub struct Cost {
        /// All bytes on the sockets.
        bytes: u64 ["B"],
        /// Price of these bytes, in the currency of the costs.
        money: f64 ["money"],
        /// Energy.
        kwh: f64 ["kWh"],
        /// Carbon dioxide.
        co2_g: f64 ["g"],
        /// Payload of fp32 federated averaging.
        baseline_bytes: u64 ["B"],
        /// Price of that payload.
        baseline_money: f64 ["money"],
        /// Energy of that payload.
        baseline_kwh: f64 ["kWh"],
        /// Carbon dioxide of that payload.
        baseline_co2_g: f64 ["g"],
    }
}

line! {
    /// Costs of one client.
    pub struct ClientCost {
        /// The client.
        client: String [""],
        /// The costs.
        cost: Cost [],
    }
}

line! {
    /// Costs of one round.
    pub struct RoundCost {
        /// The round.
        round: u64 [""],
        /// The costs.
        cost: Cost [],
    }
}

/// What a run cost: all bytes on its sockets at the given prices. The baseline is the payload of fp32 federated averaging (a
/// model down for every client asked, one up for every update) for the rounds up to
/// [`Baseline::through`](crate::Baseline::through).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Costs {
    /// The currency of `money`.
    pub currency: String,
    /// Price of the bytes up.
    pub money_up: f64,
    /// Price of the bytes down.
    pub money_down: f64,
    /// Price of all bytes.
    pub money: f64,
    /// Energy in kWh.
    pub kwh: f64,
    /// Carbon dioxide in grams.
    pub co2_g: f64,
    /// Price of the baseline.
    pub baseline_money: f64,
    /// Energy of the baseline in kWh.
    pub baseline_kwh: f64,
    /// Carbon dioxide of the baseline in grams.
    pub baseline_co2_g: f64,
    /// Costs by client, in the order of names; they add up to the whole.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub clients: Vec<ClientCost>,
    /// Costs by round.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub rounds: Vec<RoundCost>,
}
