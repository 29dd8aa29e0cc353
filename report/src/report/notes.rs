//! What stands out in a run, as sentences that name what to change.

use crate::report::Report;
use crate::report::settings::FrameBudget;
use crate::report::stages::StageBytes;
use crate::table::sums::sum;
use crate::text::number::{digits, name};

/// Frames so many times as long as their budget exceed it.
const LONGER: f64 = 1.05;
/// Most bits per value of a frame: the values themselves take 32. More bits are headers, and say nothing of a codec.
pub const MOST_BITS: f64 = 33.0;
/// Evaluated rounds over which a trend is judged.
const TREND: usize = 3;
/// Difference of two accuracies that is a trend and not noise.
const RISE: f64 = 0.005;
/// Difference of the accuracy of a client from the median that is worth a look.
const BEHIND: f64 = 0.1;

/// Bits of frame per value; `None` without frames or values, and for frames that are mostly headers.
pub fn bits_per_value(bytes: u64, frames: u64, values: u64) -> Option<f64> {
    let slots = values.saturating_mul(frames);
    let bits = 8.0 * bytes as f64 / slots as f64;
    (slots > 0 && bits <= MOST_BITS).then_some(bits)
}

/// How much longer than its budget the mean frame of these stages is, if its limit of the error makes it longer: bits per
/// value that were sent, bits that the budget asks for, and the limit.
pub(crate) fn excess(stages: &StageBytes, frames: u64, budget: Option<FrameBudget>) -> Option<(f64, f64, f64)> {
    let budget = budget?;
    let (values, asked) = (stages.fp32 / 4, budget.bytes.saturating_mul(frames));
    let sent = bits_per_value(stages.framed, 1, values)?;
    let exceeds = stages.framed as f64 > LONGER * asked as f64;
    exceeds.then_some((sent, bits_per_value(asked, 1, values)?, budget.error?))
}

impl Report {
    /// The stages of all updates, or of all model updates, and the number of their frames.
    pub(crate) fn frames(&self, is_up: bool) -> (StageBytes, u64) {
        let mut stages = StageBytes::default();
        let of = |line: &crate::RoundLine| if is_up { line.up } else { line.down };
        self.rounds.iter().for_each(|line| stages.add(&of(line)));
        let frames = match is_up {
            true => sum(self.rounds.iter().map(|line| line.updates)),
            false => self.closed().count() as u64,
        };
        (stages, frames)
    }

    /// Seconds until the last round closes, as the last rounds took: the median of up to five. `None` before a round has
    /// closed and after the end of the run.
    pub fn seconds_left(&self) -> Option<f64> {
        let mut last: Vec<f64> = self.closed().map(|line| line.seconds).collect();
        let left = self.run.planned.saturating_sub(self.run.version);
        last.drain(..last.len().saturating_sub(5));
        last.sort_by(f64::total_cmp);
        let is_over = self.run.state == "done" || self.run.state.starts_with("failed");
        let median = last.get(last.len() / 2).filter(|_| !is_over && left > 0)?;
        Some(median * left as f64)
    }
}

/// The notes of a report.
pub fn notes(report: &Report) -> Vec<String> {
    let budgets = [
        (true, report.budget_up, "uplink"),
        (false, report.budget_down, "downlink"),
    ];
    let frames = budgets.into_iter().filter_map(|(is_up, budget, link)| {
        let (stages, frames) = report.frames(is_up);
        let (sent, asked, error) = excess(&stages, frames, budget)?;
        let way = if is_up { "up" } else { "down" };
        Some(format!(
            "{} bits per value were sent {way} where the budget asks for {}: the limit of the error, {error}; `budget` in \
             [compression.{link}] changes it.",
            digits(sent),
            digits(asked)
        ))
    });
    frames.chain(trend(report)).chain(outlier(report)).collect()
}

/// Whether the accuracy was still rising in the last rounds, or has fallen.
fn trend(report: &Report) -> Option<String> {
    let known: Vec<(u64, f64)> = report
        .rounds
        .iter()
        .filter_map(|line| Some((line.round, line.accuracy?)))
        .collect();
    let (&(_, last), before) = known.split_last()?;
    let (round, best) = *before.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if best > last + 2.0 * RISE {
        return Some(format!(
            "Accuracy fell from {:.1} % in round {round} to {:.1} %: lower `learning_rate` in [train], or evaluate an `average`.",
            100.0 * best,
            100.0 * last
        ));
    }
    let start = before.get(before.len().checked_sub(TREND)?)?.1;
    let rises = last >= best && last - start > RISE && report.seconds_left().is_none();
    rises.then(|| {
        let points = 100.0 * (last - start);
        format!("Accuracy still rose at the end, by {points:.1} points in {TREND} rounds: more `rounds` may raise it further.")
    })
}

/// The client whose accuracy is far below that of the others, of those that evaluated the newest model.
fn outlier(report: &Report) -> Option<String> {
    let newest = report.clients.iter().map(|line| line.evaluated_version).max()?;
    let mut known: Vec<(f64, &str)> = report
        .clients
        .iter()
        .filter(|line| line.evaluated_version == newest)
        .filter_map(|line| Some((line.accuracy?, line.client.as_str())))
        .collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (&(least, client), &(median, _)) = (known.first()?, known.get(known.len() / 2)?);
    (known.len() > 2 && least < median - BEHIND).then(|| {
        format!(
            "{} has an accuracy of {:.1} %, the median client {:.1} %: look at the data of this client.",
            name(client),
            100.0 * least,
            100.0 * median
        )
    })
}
