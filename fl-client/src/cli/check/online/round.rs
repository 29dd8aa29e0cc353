//! What a round takes of time and bytes, from what was measured, compared with the round's deadline.

use fl_cli::findings::Line;
use serde::Serialize;

use super::ask::Answer;
use super::learner::Learned;
use super::rate::Rate;
use crate::base::RunBase;

/// What a round is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct RoundCost {
    /// Training and encoding; `null` if it was not measured.
    training_s: Option<f64>,
    /// Transfers of the model update and the update; `null` if their size is not known.
    transfer_s: Option<f64>,
    deadline_s: f64,
    /// Bytes of the update's frame and of the model update's.
    up: Option<u64>,
    down: Option<u64>,
    /// Bytes of the model, which the client downloads before its first round, or 0 if its learner makes the run's first weights and no
    /// round is closed; and of the frozen tensors if the server has them.
    first: u64,
    first_s: Option<f64>,
}

/// The line about a round, and its figures. `tried`: whether a dry run was asked for.
pub(super) fn line(answer: &Answer, learned: &Learned, tried: bool) -> (Line, RoundCost) {
    let probed = &answer.probed;
    let trained = learned.trained.as_ref();
    let joined = &probed.run;
    let budget = joined.uplink.budget.map(|budget| budget.bytes(joined.layout.len()));
    // What was measured here, what others needed, or what the run asks for.
    let up = trained
        .and_then(|trained| trained.frame)
        .or(probed.update_bytes)
        .or(budget);
    // Before the first round, a model update is taken to be as long as an update.
    let down = probed.step_bytes.or(up);
    let took = |bytes: u64, rate: Rate| bytes as f64 / rate.bytes;
    let transfer = up
        .zip(down)
        .zip(answer.rates)
        .map(|((up, down), rates)| took(up, rates.up) + took(down, rates.down) + 2.0 * answer.round_trip.as_secs_f64());
    let is_first = probed.step_bytes.is_none();
    let model = match learned.makes_first && is_first {
        true => 0,
        false => 4 * joined.layout.len() as u64,
    };
    let base = RunBase::of(joined).ok().flatten().filter(|_| joined.serves_base);
    let first = model + base.map_or(0, |base| base.len());
    let cost = RoundCost {
        training_s: trained.and_then(|trained| trained.round).map(|time| time.as_secs_f64()),
        transfer_s: transfer,
        deadline_s: probed.deadline.as_secs_f64(),
        up,
        down,
        first,
        first_s: answer.rates.map(|rates| took(first, rates.down)),
    };
    // The operator of the server sets the deadline.
    (judged(&cost, tried).remote(), cost)
}

/// `tried`: whether a dry run was asked for.
fn judged(cost: &RoundCost, tried: bool) -> Line {
    let mut line = of_round(cost, tried);
    if cost.first > 0 {
        let time = cost.first_s.map_or_else(|| "an unknown time".to_owned(), time_of);
        line.details.push(format!(
            "before its first round, this client downloads the model, frozen tensors included, unless it has or makes the same: about {:.2} MB, in {time}",
            cost.first as f64 / 1e6
        ));
    }
    line
}

fn of_round(cost: &RoundCost, tried: bool) -> Line {
    const CHECK: &str = "round";
    let deadline = time_of(cost.deadline_s);
    let bytes = cost.up.zip(cost.down).map(|(up, down)| up.saturating_add(down));
    let (transfer, bytes) = match cost.transfer_s.zip(bytes) {
        Some((seconds, bytes)) => (seconds, format!("{:.2} MB", bytes as f64 / 1e6)),
        None => (0.0, "an unknown number of bytes".to_owned()),
    };
    let Some(training) = cost.training_s else {
        let text = format!(
            "transfers {bytes} in {}, and trains for an unknown time; the deadline is {deadline}",
            time_of(transfer)
        );
        return match transfer > cost.deadline_s {
            true => Line::wrong(CHECK, text, TOO_SLOW),
            false if tried => Line::good(CHECK, text),
            false => Line::good(CHECK, text).with_details(vec!["`--dry-run 3` measures the training".to_owned()]),
        };
    };
    let whole = training + transfer;
    let text = format!("takes {} and {bytes}; the deadline is {deadline}", time_of(whole));
    match whole {
        whole if whole > cost.deadline_s => Line::wrong(CHECK, text, TOO_SLOW),
        whole if whole > cost.deadline_s / 2.0 => Line::warning(CHECK, text, TOO_SLOW),
        _ => Line::good(CHECK, text),
    }
}

const TOO_SLOW: &str = "ask the operator for a longer `deadline`, fewer steps in [train] or a smaller `budget` in [compression.uplink] of run.toml";

/// `0.8 s`, `40 s` or `5 min`.
fn time_of(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;

    use super::*;

    #[test]
    fn a_round_is_compared_with_its_deadline() {
        let cost = |training_s, transfer_s: f64| RoundCost {
            training_s,
            transfer_s: Some(transfer_s),
            deadline_s: 300.0,
            up: Some(200_000),
            down: Some(100_000),
            first: 0,
            first_s: Some(0.0),
        };
        for (training, transfer, level, text) in [
            (
                Some(38.0),
                2.0,
                Level::Good,
                "takes 40 s and 0.30 MB; the deadline is 5 min",
            ),
            (Some(170.0), 2.0, Level::Warning, "takes 3 min"),
            (Some(299.5), 1.0, Level::Wrong, "takes 5 min"),
            (
                None,
                2.0,
                Level::Good,
                "transfers 0.30 MB in 2.0 s, and trains for an unknown time",
            ),
            (None, 301.0, Level::Wrong, "transfers 0.30 MB in 5 min"),
        ] {
            let line = judged(&cost(training, transfer), false);
            assert!(line.level == level && line.text.starts_with(text), "{line:?}");
        }
        let unknown = RoundCost {
            transfer_s: None,
            up: None,
            ..cost(Some(1.0), 0.0)
        };
        let late = RoundCost {
            first: 4_000_000,
            first_s: Some(12.0),
            ..cost(Some(1.0), 2.0)
        };
        assert_eq!(
            judged(&late, true).details,
            [
                "before its first round, this client downloads the model, frozen tensors included, unless it has or makes the same: about 4.00 MB, in 12 s"
            ]
        );
        let advised = |tried| judged(&cost(None, 2.0), tried).details;
        assert_eq!(
            (advised(false).len(), advised(true).len()),
            (1, 0),
            "a dry run that failed is not advised again"
        );
        assert!(judged(&unknown, false).text.contains("an unknown number of bytes"));
    }
}
