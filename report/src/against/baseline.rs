//! A run compared with federated averaging of plain values.

use crate::against::comparison::{Comparison, TotalLine, ratio, totals};
use crate::against::reach::ReachLine;
use crate::report::Report;
use crate::report::round::RoundLine;
use crate::table::Table;
use crate::table::line::line;
use crate::table::sums::sum;

line! {
    /// One round beside a baseline.
    pub struct BaselineRound {
        /// The round.
        round: u64 [""],
        /// Clients in the cohort.
        asked: u64 [""],
        /// Accepted updates.
        updates: u64 [""],
        /// All bytes read from the sockets of this run's clients.
        own_up: u64 ["B"],
        /// Payload of the baseline up: all values of each update.
        other_up: u64 ["B"],
        /// The baseline's bytes up over this run's.
        ratio_up: Option<f64> [""],
        /// All bytes written to the sockets of this run's clients.
        own_down: u64 ["B"],
        /// Payload of the baseline down: all values for each client asked.
        other_down: u64 ["B"],
        /// The baseline's bytes down over this run's.
        ratio_down: Option<f64> [""],
        /// The baseline's bytes over this run's, both directions together.
        ratio: Option<f64> [""],
    }
}

pub(super) fn compare(report: &Report, width: u64) -> Comparison {
    let name = if width == 4 { "fedavg-fp32" } else { "fedavg-fp16" };
    let model = report.run.parameters.saturating_mul(width);
    let rounds: Vec<BaselineRound> = report.closed().map(|line| beside(line, model)).collect();
    let asked_up = sum(rounds.iter().map(|line| line.other_up));
    let asked_down = sum(rounds.iter().map(|line| line.other_down));
    let kept = report.baseline(name);
    let (up, down) = kept.map_or((asked_up, asked_down), |base| (base.up, base.down));
    let own = totals(report);
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
        perplexity: None,
    };
    let mut notes = vec![format!(
        "{name} counts payload only: {width} bytes per value for each update, and for each model down to a client asked. \
         This run counts all bytes on its sockets: frames, evaluations, control, heartbeats, TLS and HTTP/2."
    )];
    let closed = rounds.last().map_or(0, |line| line.round);
    let through = kept.map_or(closed, |base| base.through);
    if through < closed || report.rounds.iter().any(|line| !line.closed) {
        notes.push(format!(
            "The run is not finished: its totals count all bytes up to now, those of {name} only the first {through} rounds, \
             whose models have reached the clients. The saving is too low rather than too high."
        ));
    } else if (up, down) != (asked_up, asked_down) {
        let more = "The totals of the baseline also count the newest model down to each client that evaluated it; its rounds do not.";
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

/// A round beside federated averaging of models of `model` bytes.
fn beside(line: &RoundLine, model: u64) -> BaselineRound {
    let own_up = line.flow.socket_up;
    let own_down = line.flow.socket_down;
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
}
