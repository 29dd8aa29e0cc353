//! What stands out in a run, as sentences that name what to change.

use crate::report::Report;
use crate::report::round::RoundLine;
use crate::report::settings::FrameBudget;
use crate::report::stages::StageBytes;
use crate::text::number::digits;

/// Frames so many times as long as their budget exceed it.
const LONGER: f64 = 1.05;
/// Most bits per value of a frame: the values themselves take 32. More bits are headers, and say nothing of a codec.
pub const MOST_BITS: f64 = 33.0;

/// Bits of frame per value; `None` without frames or values, and for frames that are mostly headers.
pub fn bits_per_value(bytes: u64, frames: u64, values: u64) -> Option<f64> {
    let slots = values.saturating_mul(frames);
    let bits = 8.0 * bytes as f64 / slots as f64;
    (slots > 0 && bits <= MOST_BITS).then_some(bits)
}

/// The notes of a report: frames that the limit of the error makes longer than their budget.
pub fn notes(report: &Report) -> Vec<String> {
    let note = |way, budget: &Option<FrameBudget>, frames: &dyn Fn(&RoundLine) -> (StageBytes, u64)| {
        let (mut stages, mut asked, budget) = (StageBytes::default(), 0, budget.as_ref()?);
        for (of_round, frames) in report.closed().map(frames) {
            stages.add(&of_round);
            asked = budget.bytes.saturating_mul(frames).saturating_add(asked);
        }
        let exceeds = stages.framed as f64 > LONGER * asked as f64;
        let [sent, asked] = [stages.framed, asked].map(|bytes| bits_per_value(bytes, 1, stages.fp32 / 4));
        Some(format!(
            "{} bits per value were sent {way} where the budget asks for {}: the limit of the error, {}; `budget` in \
             [compression.{way}link] changes it.",
            digits(sent.filter(|_| exceeds)?),
            digits(asked?),
            budget.error.as_ref()?
        ))
    };
    let up = note("up", &report.settings.budget_up, &|line| (line.up, line.updates));
    let down = note("down", &report.settings.budget_down, &|line| (line.down, 1));
    up.into_iter().chain(down).collect()
}
