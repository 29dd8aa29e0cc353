//! What a run cost in money and carbon, by prices that the user gives.
//!
//! Nothing is assumed: a price that is not given is zero.

mod config;
mod join;

pub use config::{CostsPlan, Link};

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::columns::{Table, deserialize, line, serialize};
use crate::flow::Flow;
use crate::lines::Participation;
use crate::report::Report;
use crate::text::{self, short};

line! {
    /// Costs of one client.
    pub struct ClientCost {
        /// The client.
        client: String [""],
        /// Everything on its sockets.
        bytes: u64 ["B"],
        /// Its price, in the currency of the costs.
        money: f64 ["money"],
        /// Energy.
        kwh: f64 ["kWh"],
        /// Carbon dioxide.
        co2_g: f64 ["g"],
        /// Bytes of fp32 federated averaging.
        baseline_bytes: u64 ["B"],
        /// Their price.
        baseline_money: f64 ["money"],
        /// Their energy.
        baseline_kwh: f64 ["kWh"],
        /// Their carbon dioxide.
        baseline_co2_g: f64 ["g"],
    }
}

line! {
    /// Costs of one round.
    pub struct RoundCost {
        /// The round.
        round: u64 [""],
        /// Everything on its clients' sockets.
        bytes: u64 ["B"],
        /// Its price, in the currency of the costs.
        money: f64 ["money"],
        /// Energy.
        kwh: f64 ["kWh"],
        /// Carbon dioxide.
        co2_g: f64 ["g"],
        /// Bytes of fp32 federated averaging.
        baseline_bytes: u64 ["B"],
        /// Their price.
        baseline_money: f64 ["money"],
        /// Their energy.
        baseline_kwh: f64 ["kWh"],
        /// Their carbon dioxide.
        baseline_co2_g: f64 ["g"],
    }
}

/// What a run cost: everything on its sockets, at the given prices; and beside it what the payload of fp32 federated
/// averaging would have cost for the rounds that can be compared, [`Baseline::through`](crate::Baseline::through) (a model
/// down for every client asked, one up for every update).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Costs {
    /// What `money` is counted in.
    pub currency: String,
    /// Price of the bytes up.
    pub money_up: f64,
    /// Price of the bytes down.
    pub money_down: f64,
    /// Their sum.
    pub money: f64,
    /// Energy in kWh.
    pub kwh: f64,
    /// Carbon dioxide in grams.
    pub co2_g: f64,
    /// Price of the baseline.
    pub baseline_money: f64,
    /// Its energy in kWh.
    pub baseline_kwh: f64,
    /// Its carbon dioxide in grams.
    pub baseline_co2_g: f64,
    /// Clients, by name; they add up to the whole.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub clients: Vec<ClientCost>,
    /// Rounds.
    #[serde(serialize_with = "serialize", deserialize_with = "deserialize")]
    pub rounds: Vec<RoundCost>,
}

/// Bytes of a GB, in which links are priced.
const GB: f64 = 1e9;

/// Bytes by direction, ours and the baseline's.
#[derive(Default, Clone, Copy)]
struct Bytes {
    up: u64,
    down: u64,
    baseline_up: u64,
    baseline_down: u64,
}

/// Prices of some bytes.
#[derive(Default, Clone, Copy)]
struct Price {
    money_up: f64,
    money_down: f64,
    kwh: f64,
    baseline_money: f64,
    baseline_kwh: f64,
}

impl Bytes {
    fn of(flow: &Flow, model: u64, asked: u64, updates: u64) -> Self {
        Self {
            up: flow.socket_up,
            down: flow.socket_down,
            baseline_up: model.saturating_mul(updates),
            baseline_down: model.saturating_mul(asked),
        }
    }

    fn at(&self, link: &Link) -> Price {
        let gb = |up: u64, down: u64| (up as f64 / GB, down as f64 / GB);
        let (up, down) = gb(self.up, self.down);
        let (baseline_up, baseline_down) = gb(self.baseline_up, self.baseline_down);
        Price {
            money_up: up * link.price_per_gb_up,
            money_down: down * link.price_per_gb_down,
            kwh: (up + down) * link.kwh_per_gb,
            baseline_money: baseline_up * link.price_per_gb_up + baseline_down * link.price_per_gb_down,
            baseline_kwh: (baseline_up + baseline_down) * link.kwh_per_gb,
        }
    }
}

impl Price {
    fn add(&mut self, more: &Self) {
        self.money_up += more.money_up;
        self.money_down += more.money_down;
        self.kwh += more.kwh;
        self.baseline_money += more.baseline_money;
        self.baseline_kwh += more.baseline_kwh;
    }
}

impl Costs {
    /// The costs of a run by a plan of prices.
    pub fn of(report: &Report, plan: &CostsPlan) -> Self {
        let model = report.run.parameters.saturating_mul(4);
        let links: BTreeMap<&str, &Link> = report
            .clients
            .iter()
            .map(|line| (line.client.as_str(), plan.link(&line.client)))
            .collect();
        let through = report.baseline("fedavg-fp32").map_or(0, |base| base.through);
        let compared = |line: &&Participation| line.round <= through;
        let mut models = BTreeMap::<&str, (u64, u64)>::new();
        for line in report.participations.iter().filter(compared) {
            let (asked, updates) = models.entry(&line.client).or_default();
            *asked += u64::from(line.asked);
            *updates += u64::from(line.updated);
        }
        let mut all = Price::default();
        let mut clients = Vec::with_capacity(report.clients.len());
        for line in &report.clients {
            let (asked, updates) = models.get(line.client.as_str()).copied().unwrap_or_default();
            let bytes = Bytes::of(&line.flow, model, asked, updates);
            let price = bytes.at(plan.link(&line.client));
            all.add(&price);
            clients.push(ClientCost {
                client: line.client.clone(),
                bytes: bytes.up.saturating_add(bytes.down),
                money: price.money_up + price.money_down,
                kwh: price.kwh,
                co2_g: price.kwh * plan.carbon_g_per_kwh,
                baseline_bytes: bytes.baseline_up.saturating_add(bytes.baseline_down),
                baseline_money: price.baseline_money,
                baseline_kwh: price.baseline_kwh,
                baseline_co2_g: price.baseline_kwh * plan.carbon_g_per_kwh,
            });
        }
        let mut rounds: BTreeMap<u64, RoundCost> = BTreeMap::new();
        for line in &report.participations {
            let link = links.get(line.client.as_str()).copied().unwrap_or(&plan.default);
            let counts = compared(&line);
            let (asked, updates) = (counts && line.asked, counts && line.updated);
            let bytes = Bytes::of(&line.flow, model, u64::from(asked), u64::from(updates));
            let price = bytes.at(link);
            let sum = rounds.entry(line.round).or_default();
            sum.round = line.round;
            sum.bytes = sum.bytes.saturating_add(line.flow.socket());
            sum.money += price.money_up + price.money_down;
            sum.kwh += price.kwh;
            sum.co2_g += price.kwh * plan.carbon_g_per_kwh;
            let baseline = bytes.baseline_up.saturating_add(bytes.baseline_down);
            sum.baseline_bytes = sum.baseline_bytes.saturating_add(baseline);
            sum.baseline_money += price.baseline_money;
            sum.baseline_kwh += price.baseline_kwh;
            sum.baseline_co2_g += price.baseline_kwh * plan.carbon_g_per_kwh;
        }
        Self {
            currency: plan.currency.clone(),
            money_up: all.money_up,
            money_down: all.money_down,
            money: all.money_up + all.money_down,
            kwh: all.kwh,
            co2_g: all.kwh * plan.carbon_g_per_kwh,
            baseline_money: all.baseline_money,
            baseline_kwh: all.baseline_kwh,
            baseline_co2_g: all.baseline_kwh * plan.carbon_g_per_kwh,
            clients,
            rounds: rounds.into_values().collect(),
        }
    }

    /// Writes the section of the text report.
    pub(crate) fn write(&self, out: &mut String) {
        let currency = text::name(&self.currency);
        let _ = writeln!(
            out,
            "Costs: {} {currency} ({} up, {} down), {} kWh, {} g of carbon dioxide",
            short(self.money),
            short(self.money_up),
            short(self.money_down),
            short(self.kwh),
            short(self.co2_g)
        );
        let _ = writeln!(
            out,
            "The payload of fp32 federated averaging over the same links: {} {currency}, {} kWh, {} g",
            short(self.baseline_money),
            short(self.baseline_kwh),
            short(self.baseline_co2_g)
        );
        text::write(out, &Table::of(self.clients.iter()));
    }
}
