//! Where to save: what the bytes on the sockets were spent on, in sentences, the largest first, each with what to change.

use crate::columns::line;
use crate::directions::flow;
use crate::query::Filter;
use crate::report::Report;
use crate::text::{count, digits};

line! {
    /// One cost of a run. All of them add up to its sockets.
    pub struct Saving {
        /// What was paid for: `updates`, `model updates`, `whole models`, `useless frames`, `connections`, `messages`.
        cost: String [""],
        /// Bytes.
        bytes: u64 ["B"],
        /// Share of everything on the sockets.
        share: Option<f64> [""],
        /// What they were spent on, as a sentence.
        why: String [""],
        /// What to change to spend less, as a sentence.
        change: String [""],
    }
}

/// How many costs a whole report names.
const NAMED: usize = 3;
/// From so many connections of a client on, on average, connections are opened too often.
const OFTEN: f64 = 1.5;
/// From so many bits for each parameter on, a frame is hardly compressed.
const PLAIN: f64 = 16.0;

/// The largest costs of a run.
pub fn savings(report: &Report) -> Vec<Saving> {
    let mut lines = costs(report, &Filter::default());
    lines.retain(|line| line.bytes > 0);
    lines.truncate(NAMED);
    lines
}

/// All costs of the lines asked for, the largest first.
pub(crate) fn costs(report: &Report, filter: &Filter) -> Vec<Saving> {
    let flow = flow(report, filter);
    let parts: Vec<_> = report
        .participations
        .iter()
        .filter(|line| filter.round.is_none_or(|round| round == line.round))
        .filter(|line| filter.client.as_ref().is_none_or(|client| *client == line.client))
        .collect();
    let updates = parts.iter().filter(|line| line.updated).count() as u64;
    let framed = parts.iter().fold(0_u64, |sum, line| sum.saturating_add(line.framed));
    let clients = parts
        .iter()
        .map(|line| line.client.as_str())
        .filter(|client| *client != "-");
    let clients = clients.collect::<std::collections::BTreeSet<_>>().len() as u64;
    let parameters = report.run.parameters;
    let bits = |bytes: u64, frames: u64| {
        let slots = parameters.saturating_mul(frames);
        (slots > 0).then(|| 8.0 * bytes as f64 / slots as f64)
    };
    let budget = |way: &str, bits: Option<f64>| match bits {
        Some(bits) if bits >= PLAIN => format!(
            "Compress them: run.toml sends them plain; without its `default` in [compression.{way}] they take a quarter of a bit."
        ),
        _ => format!(
            "Lower `budget` in [compression.{way}] of run.toml; try it with `fl-server report --what-if` first."
        ),
    };
    let up = bits(framed, updates);
    let down = {
        let closed = report.rounds.iter().filter(|line| line.closed);
        let (bytes, frames) = closed.fold((0_u64, 0), |sum, line| {
            (sum.0.saturating_add(line.framed_down), sum.1 + 1)
        });
        bits(bytes, frames)
    };
    let at = |bits: Option<f64>| bits.map_or(String::new(), |bits| format!(" at {} bits a parameter", digits(bits)));
    let whole = parameters.saturating_mul(4);
    let models = if whole > 0 {
        flow.snapshot as f64 / whole as f64
    } else {
        0.0
    };
    // Connections that showed no certificate are nobody's, as is what they cost.
    let nobodys = parts.iter().filter(|line| line.client == "-");
    let nobodys = nobodys.fold(0_u64, |sum, line| sum.saturating_add(line.flow.connections));
    let connections = flow.connections.saturating_sub(nobodys);
    let each = if clients > 0 {
        connections as f64 / clients as f64
    } else {
        0.0
    };
    let sum = |bytes: &[u64]| bytes.iter().copied().fold(0, u64::saturating_add);
    let retrain =
        "Do more work in each round (`epochs` in [train] of run.toml), so that fewer rounds reach the same model.";
    let lines = [
        (
            "updates",
            flow.update,
            format!("Clients sent {} updates{}.", count(updates), at(up)),
            budget("uplink", up),
        ),
        (
            "model updates",
            flow.steps,
            format!("Clients fetched the model updates of the rounds{}.", at(down)),
            budget("downlink", down),
        ),
        (
            "whole models",
            flow.snapshot,
            format!("Clients fetched whole models, as much as {} of them in fp32.", digits(models)),
            "Give run.toml the `seed` of `fl-client init`, so that clients make the first weights themselves, and keep the \
             clients' state folders, so that they need model updates only."
                .to_owned(),
        ),
        (
            "useless frames",
            flow.waste(),
            "Frames were refused, sent twice or broken off.".to_owned(),
            "Ask no more clients than are needed (`size` near `target` in [cohort] of run.toml), or wait longer for late ones \
             (`grace`, `deadline`)."
                .to_owned(),
        ),
        (
            "connections",
            sum(&[
                flow.transport_up,
                flow.transport_down,
                flow.heartbeat_up,
                flow.heartbeat_down,
            ]),
            format!(
                "TLS and HTTP/2 took this, on {} connections, {} for each client.",
                count(connections),
                digits(each)
            ),
            if each > OFTEN {
                "Keep clients connected between rounds: every new connection costs a handshake.".to_owned()
            } else {
                retrain.to_owned()
            },
        ),
        (
            "messages",
            sum(&[flow.control_up, flow.control_down, flow.evaluation]),
            "Clients joined, watched, offered updates, evaluated, and were answered.".to_owned(),
            retrain.to_owned(),
        ),
    ];
    let all = flow.socket();
    let mut lines: Vec<Saving> = lines
        .into_iter()
        .map(|(cost, bytes, why, change)| Saving {
            cost: cost.to_owned(),
            bytes,
            share: (all > 0).then(|| bytes as f64 / all as f64),
            why,
            change,
        })
        .collect();
    // Of equal ones the order above stays.
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use crate::report::tests::report;

    fn of(flow: Flow) -> Vec<Saving> {
        let mut report = report();
        report.run.parameters = 1_000;
        (report.totals, report.participations[0].flow) = (flow, flow);
        (report.participations[0].updated, report.participations[0].framed) = (true, flow.update);
        savings(&report)
    }

    #[test]
    fn the_three_largest_costs_are_named_with_what_to_change() {
        let found = of(Flow {
            update: 500,
            steps: 20,
            snapshot: 4_000,
            refused: 30,
            transport_up: 700,
            socket_up: 1_230,
            socket_down: 4_020,
            connections: 4,
            ..Flow::default()
        });
        let names: Vec<_> = found.iter().map(|line| (line.cost.as_str(), line.bytes)).collect();
        assert_eq!(names, [("whole models", 4_000), ("connections", 700), ("updates", 500)]);
        assert_eq!(
            found[0].why,
            "Clients fetched whole models, as much as 1.00 of them in fp32."
        );
        assert!(found[0].change.contains("`seed`") && found[1].change.contains("Keep clients connected"));
        assert_eq!(found[2].why, "Clients sent 1 updates at 4.00 bits a parameter.");
        assert!(found[2].change.contains("Lower `budget`"));
        assert_eq!(found[0].share, Some(4_000.0 / 5_250.0));
    }

    #[test]
    fn plain_updates_are_to_be_compressed_and_nothing_costs_nothing() {
        let found = of(Flow {
            update: 4_000,
            socket_up: 4_000,
            ..Flow::default()
        });
        assert_eq!(found.len(), 1);
        assert!(found[0].change.starts_with("Compress them"), "{found:?}");
        assert!(of(Flow::default()).is_empty());
    }
}
