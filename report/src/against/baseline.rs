//! A run beside federated averaging of plain values.

use super::{Comparison, ReachLine, TotalLine, ratio};
use crate::columns::{Table, line};
use crate::report::Report;

line! {
    /// One round beside a baseline.
    pub struct BaselineRound {
        /// The round.
        round: u64 [""],
        /// Clients asked.
        asked: u64 [""],
        /// Updates counted.
        updates: u64 [""],
        /// Everything read from its clients' sockets.
        own_up: u64 ["B"],
        /// Payload of the baseline up: every value of every update.
        other_up: u64 ["B"],
        /// The baseline's over our own.
        ratio_up: Option<f64> [""],
        /// Everything written to its clients' sockets.
        own_down: u64 ["B"],
        /// Payload of the baseline down: every value for every client asked.
        other_down: u64 ["B"],
        /// The baseline's over our own.
        ratio_down: Option<f64> [""],
        /// The baseline's over our own, both directions together.
        ratio: Option<f64> [""],
    }
}

pub(super) fn compare(report: &Report, width: u64) -> Comparison {
    let name = if width == 4 { "fedavg-fp32" } else { "fedavg-fp16" };
    let model = report.run.parameters.saturating_mul(width);
    let rounds: Vec<BaselineRound> = report
        .rounds
        .iter()
        .filter(|line| line.closed)
        .map(|line| {
            let (own_up, own_down) = (line.flow.socket_up, line.flow.socket_down);
            let other_up = model.saturating_mul(line.updates);
            let other_down = model.saturating_mul(line.asked);
            BaselineRound {
                round: line.round,
                asked: line.asked,
                updates: line.updates,
                own_up,
                other_up,
                ratio_up: ratio(other_up, own_up),
                own_down,
                other_down,
                ratio_down: ratio(other_down, own_down),
                ratio: ratio(other_up.saturating_add(other_down), own_up.saturating_add(own_down)),
            }
        })
        .collect();
    let sum = |value: fn(&BaselineRound) -> u64| rounds.iter().map(value).fold(0, u64::saturating_add);
    let (asked_up, asked_down) = (sum(|line| line.other_up), sum(|line| line.other_down));
    let kept = report.baseline(name);
    let (up, down) = kept.map_or((asked_up, asked_down), |base| (base.up, base.down));
    let own = report.total_line();
    let bytes = up.saturating_add(down);
    let other = TotalLine {
        what: name.to_owned(),
        rounds: own.rounds,
        updates: own.updates,
        up,
        down,
        bytes,
        times: ratio(bytes, own.bytes),
        accuracy: None,
    };
    let mut notes = vec![format!(
        "{name} counts payload only: {width} bytes a value for each update, and for each model down to a client asked. \
         This run counts everything on its sockets: frames, evaluations, control, heartbeats, TLS and HTTP/2."
    )];
    let closed = rounds.last().map_or(0, |line| line.round);
    let through = kept.map_or(closed, |base| base.through);
    if through < closed || report.rounds.iter().any(|line| !line.closed) {
        notes.push(format!(
            "The run goes on: its totals have everything up to now, those of {name} the rounds whose models have reached \
             their clients, the first {through}. So the saving is too low rather than too high."
        ));
    } else if (up, down) != (asked_up, asked_down) {
        let more = "Its totals also count the newest model down to each client that evaluated it; its rounds do not.";
        notes.push(more.to_owned());
    }
    Comparison {
        against: name.to_owned(),
        notes,
        totals: Table::of([own, other].iter()),
        rounds: Table::of(rounds.iter()),
        reach: Table::of(std::iter::empty::<&ReachLine>()),
    }
}
