//! What stands out in a run, as sentences that name what to change.

use crate::report::Report;
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
    let up = report.closed().map(|line| (line.up, line.updates));
    let up = note("up", report.settings.budget_up.as_ref(), up);
    let down = report.closed().map(|line| (line.down, 1));
    let down = note("down", report.settings.budget_down.as_ref(), down);
    up.into_iter().chain(down).collect()
}

/// `rounds`: the stages of the frames of each round, and their number.
fn note(way: &str, budget: Option<&FrameBudget>, rounds: impl Iterator<Item = (StageBytes, u64)>) -> Option<String> {
    let budget = budget?;
    let mut stages = StageBytes::default();
    let mut asked = 0_u64;
    for (of_round, frames) in rounds {
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
}
