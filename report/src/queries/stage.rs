//! What each stage of compression made of the bytes, and what was sent in the end.

use crate::columns::line;
use crate::directions::flow;
use crate::lines::RoundLine;
use crate::query::Filter;
use crate::report::Report;

line! {
    /// Bytes after one stage, in one direction.
    pub struct StageLine {
        /// `up` for the updates, `down` for the steps.
        direction: String [""],
        /// `fp32`, `reduced`, `quantized` (of these two, none that is larger than the stage before it), `coded`, `framed`; `bound`, their order-0 entropy, which only coding by context may go below; and `sent`, the frames that were sent: wanted or not, of steps to every client, and snapshots.
        stage: String [""],
        /// Bytes.
        bytes: f64 ["B"],
        /// Share of the same at four bytes a value; of what was sent down, of a model at four bytes a value for every client asked.
        share: Option<f64> [""],
        /// Bytes for each parameter.
        bytes_per_parameter: Option<f64> ["B/parameter"],
    }
}

/// The names of the stages; what was sent follows them.
const STAGES: [&str; 6] = ["fp32", "reduced", "quantized", "coded", "framed", "bound"];

pub(crate) fn stages(report: &Report, filter: &Filter) -> Vec<StageLine> {
    let mut up = [0.0; 6];
    let mut down = None;
    let asked: u64;
    if let Some(client) = &filter.client {
        let lines = report
            .participations
            .iter()
            .filter(|line| line.client == *client && filter.round.is_none_or(|round| round == line.round));
        asked = lines.clone().filter(|line| line.asked).count() as u64;
        for line in lines {
            let bytes = [line.fp32, line.reduced, line.quantized, line.coded, line.framed].map(|bytes| bytes as f64);
            add(&mut up, bytes, line.bound);
        }
    } else {
        let lines = report
            .rounds
            .iter()
            .filter(|line| filter.round.is_none_or(|round| round == line.round));
        // What went down to the clients of an open round is not all of it.
        asked = lines.clone().filter(|line| line.closed).map(|line| line.asked).sum();
        let mut steps = [0.0; 6];
        for line in lines {
            add(&mut up, stages_up(line), line.bound_up);
            add(&mut steps, stages_down(line), line.bound_down);
        }
        down = Some(steps);
    }
    let flow = flow(report, filter);
    let mut out = Vec::new();
    push(&mut out, "up", Some(&up), flow.frames_up(), up[0]);
    let whole = 4.0 * report.run.parameters as f64 * asked as f64;
    // The steps are the same for all clients: of one client there is only what was sent to it.
    push(&mut out, "down", down.as_ref(), flow.frames_down(), whole);
    out
}

fn stages_up(line: &RoundLine) -> [f64; 5] {
    [
        line.fp32_up,
        line.reduced_up,
        line.quantized_up,
        line.coded_up,
        line.framed_up,
    ]
    .map(|bytes| bytes as f64)
}

fn stages_down(line: &RoundLine) -> [f64; 5] {
    [
        line.fp32_down,
        line.reduced_down,
        line.quantized_down,
        line.coded_down,
        line.framed_down,
    ]
    .map(|bytes| bytes as f64)
}

fn add(sums: &mut [f64; 6], stages: [f64; 5], bound: f64) {
    let more = stages.into_iter().chain([bound]);
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// Stages that are left out because they have more bytes than the one before: before coding, an index counts four bytes, and
/// a stage that nothing sends would read as compression that expands.
fn left_out(stages: &[f64; 6]) -> Vec<&'static str> {
    let mut least = stages[0];
    let mut out = Vec::new();
    for (stage, bytes) in STAGES.iter().zip(stages).take(3).skip(1) {
        if *bytes > least {
            out.push(*stage);
        } else {
            least = *bytes;
        }
    }
    out
}

/// What has to be known to read the stages, as a sentence; empty if nothing has.
pub(crate) fn note(lines: &[StageLine]) -> String {
    let has = |direction: &str, stage: &str| {
        lines
            .iter()
            .any(|line| line.direction == direction && line.stage == stage)
    };
    let missing: Vec<String> = ["up", "down"]
        .into_iter()
        .filter(|direction| has(direction, "fp32"))
        .flat_map(|direction| {
            ["reduced", "quantized"]
                .into_iter()
                .filter(move |stage| !has(direction, stage))
                .map(move |stage| format!("{stage} ({direction})"))
        })
        .collect();
    if missing.is_empty() {
        return String::new();
    }
    format!(
        "Left out: {}. Before coding an index counts 4 bytes, so that this form, which nothing sends, is larger than the one \
         before it.\n",
        missing.join(", ")
    )
}

fn push(out: &mut Vec<StageLine>, direction: &str, stages: Option<&[f64; 6]>, sent: u64, whole: f64) {
    let line = |stage: &str, bytes: f64, fp32: f64| {
        let share = (fp32 > 0.0).then(|| bytes / fp32);
        StageLine {
            direction: direction.to_owned(),
            stage: stage.to_owned(),
            bytes,
            share,
            bytes_per_parameter: share.map(|share| 4.0 * share),
        }
    };
    if let Some(stages) = stages {
        let left_out = left_out(stages);
        out.extend(
            STAGES
                .iter()
                .zip(stages)
                .filter(|(stage, _)| !left_out.contains(stage))
                .map(|(stage, bytes)| line(stage, *bytes, stages[0])),
        );
    }
    out.push(line("sent", sent as f64, whole));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    fn lines(reduced: u64, quantized: u64) -> Vec<StageLine> {
        let mut report = report();
        report.run.parameters = 250;
        let line = &mut report.rounds[0];
        (line.closed, line.asked, line.updates) = (true, 1, 1);
        (line.fp32_up, line.reduced_up, line.quantized_up) = (1_000, reduced, quantized);
        (line.coded_up, line.framed_up, line.bound_up) = (40, 50, 39.0);
        stages(&report, &Filter::default())
    }

    #[test]
    fn no_stage_reads_as_compression_that_expands() {
        for (reduced, quantized, left) in [
            (1_070, 600, "Left out: reduced (up). "),
            (1_070, 1_020, "Left out: reduced (up), quantized (up). "),
            (700, 800, "Left out: quantized (up). "),
            (700, 300, ""),
        ] {
            let lines = lines(reduced, quantized);
            let up: Vec<_> = lines.iter().filter(|line| line.direction == "up").collect();
            assert!(up.iter().all(|line| line.share <= Some(1.0)), "{up:?}");
            let made = up.iter().take_while(|line| line.stage != "coded");
            assert!(
                made.clone().zip(made.skip(1)).all(|(a, b)| b.bytes <= a.bytes),
                "{up:?}"
            );
            let said = note(&lines);
            assert!(said.starts_with(left) && said.is_empty() == left.is_empty(), "{said}");
            assert!(up.iter().any(|line| line.stage == "framed" && line.bytes == 50.0));
        }
    }
}
