//! Prices the bytes of a run.

use std::collections::BTreeMap;

use crate::costs::plan::{CostsPlan, GB, Link};
use crate::report::Report;
use crate::report::costs::{ClientCost, Cost, Costs, RoundCost};
use crate::report::flow::Flow;

impl Costs {
    /// Prices the bytes of a run by a plan.
    pub fn of(report: &Report, plan: &CostsPlan) -> Self {
        let model = report.run.parameters.saturating_mul(4);
        let links: BTreeMap<&str, &Link> = report
            .clients
            .iter()
            .map(|line| (line.client.as_str(), plan.link(&line.client)))
            .collect();
        let through = report.baseline("fedavg-fp32").map_or(0, |base| base.through);
        let mut models = BTreeMap::<&str, (u64, u64)>::new();
        let mut rounds = BTreeMap::<u64, RoundCost>::new();
        for line in &report.participations {
            let link = links.get(line.client.as_str()).copied().unwrap_or(&plan.default);
            let compared = line.round <= through;
            let (asked, updates) = (u64::from(compared && line.asked), u64::from(compared && line.updated));
            let of_client = models.entry(&line.client).or_default();
            *of_client = (of_client.0 + asked, of_client.1 + updates);
            let sum = rounds.entry(line.round).or_default();
            sum.round = line.round;
            sum.cost
                .add(&cost(&line.flow, (model * updates, model * asked), link, plan));
        }
        let mut out = Self {
            currency: plan.currency.clone(),
            rounds: rounds.into_values().collect(),
            ..Self::default()
        };
        for line in &report.clients {
            let (asked, updates) = models.get(line.client.as_str()).copied().unwrap_or_default();
            let link = plan.link(&line.client);
            let baseline = (model.saturating_mul(updates), model.saturating_mul(asked));
            let cost = cost(&line.flow, baseline, link, plan);
            out.money_up += gb(line.flow.socket_up) * link.price_per_gb_up;
            out.money_down += gb(line.flow.socket_down) * link.price_per_gb_down;
            out.kwh += cost.kwh;
            out.baseline_money += cost.baseline_money;
            out.baseline_kwh += cost.baseline_kwh;
            out.clients.push(ClientCost {
                client: line.client.clone(),
                cost,
            });
        }
        out.money = out.money_up + out.money_down;
        out.co2_g = out.kwh * plan.carbon_g_per_kwh;
        out.baseline_co2_g = out.baseline_kwh * plan.carbon_g_per_kwh;
        out
    }
}

fn gb(bytes: u64) -> f64 {
    bytes as f64 / GB
}

/// Prices the sockets' bytes of a flow, and beside them those of a baseline (up, down).
fn cost(flow: &Flow, baseline: (u64, u64), link: &Link, plan: &CostsPlan) -> Cost {
    let up = gb(flow.socket_up);
    let down = gb(flow.socket_down);
    let (baseline_up, baseline_down) = (gb(baseline.0), gb(baseline.1));
    let kwh = (up + down) * link.kwh_per_gb;
    let baseline_kwh = (baseline_up + baseline_down) * link.kwh_per_gb;
    Cost {
        bytes: flow.socket(),
        money: up * link.price_per_gb_up + down * link.price_per_gb_down,
        kwh,
        co2_g: kwh * plan.carbon_g_per_kwh,
        baseline_bytes: baseline.0.saturating_add(baseline.1),
        baseline_money: baseline_up * link.price_per_gb_up + baseline_down * link.price_per_gb_down,
        baseline_kwh,
        baseline_co2_g: baseline_kwh * plan.carbon_g_per_kwh,
    }
}
