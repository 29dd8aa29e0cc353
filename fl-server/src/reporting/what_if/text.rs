//! The answer as text.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Line, WhatIf};
use fl_report::size;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) threads: usize,
    pub(crate) time: Duration,
}

/// The answer as tables. `spec`: the name of the spec's file.
pub(crate) fn text(answer: &WhatIf, spec: &str, took: Took) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "With {spec} {}.", answer.verdict.meaning);
    let _ = writeln!(out, "Verdict: {}.\n", answer.verdict.advice);
    let _ = writeln!(out, "How this differs from the recorded run:");
    for difference in &answer.differences {
        let _ = writeln!(out, "- {difference}");
    }
    missing(&mut out, answer);
    let _ = writeln!(
        out,
        "\nrun {}, {} parameters; memory of the updates: {}, of the steps: {}\n",
        answer.run, answer.parameters, answer.memory, answer.step_memory
    );
    stages(&mut out, answer);
    table(&mut out, "round", answer.memory, &answer.rounds, &answer.updates);
    table(
        &mut out,
        "step of",
        answer.step_memory,
        &answer.step_rounds,
        &answer.steps,
    );
    table(&mut out, "client", answer.memory, &answer.clients, &answer.updates);
    let _ = writeln!(
        out,
        "lost: energy of what does not arrive, of that of the updates; at end: of the sum over the run, client by client, \
         which is what is still unsent. Where a frame also carries what those before it left out (error feedback, dgc), what \
         a single frame loses has no meaning, and is left out."
    );
    let millions = answer.frames() as f64 * answer.parameters as f64 / 1e6;
    let seconds = took.time.as_secs_f64();
    let _ = writeln!(
        out,
        "{millions:.1} million parameters in {seconds:.2} s on {} threads: {:.1} million a second and thread",
        took.threads,
        millions / seconds.max(1e-9) / took.threads.max(1) as f64
    );
    out
}

fn missing(out: &mut String, answer: &WhatIf) {
    if answer.missing.is_empty() {
        return;
    }
    let updates: usize = answer.missing.values().sum();
    let rounds: Vec<u64> = answer.missing.keys().copied().collect();
    let _ = writeln!(
        out,
        "- left out: {updates} of the run's updates, of rounds {}, are not stored any more; `keep_updates = true` in \
         server.toml keeps those to come",
        ranges(&rounds)
    );
}

/// Ascending numbers as ranges: `1-4, 6`.
fn ranges(numbers: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let words: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    words.join(", ")
}

fn stages(out: &mut String, answer: &WhatIf) {
    let _ = writeln!(
        out,
        "{:<20} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "bytes after", "fp32", "reduce", "quantize", "code", "frame", "bound"
    );
    for (name, line) in [("updates", &answer.updates), ("steps", &answer.steps)] {
        let recorded = [
            line.fp32,
            line.recorded_reduced,
            line.recorded_quantized,
            line.recorded_coded,
            line.recorded_framed,
            line.recorded_bound as u64,
        ];
        let other = [
            line.fp32,
            line.reduced,
            line.quantized,
            line.coded,
            line.framed,
            line.bound as u64,
        ];
        for (of, sizes) in [("recorded", recorded), ("other spec", other)] {
            let _ = write!(out, "{:<20}", format!("{name}, {of}"));
            for bytes in sizes {
                let _ = write!(out, " {:>10}", size(bytes));
            }
            out.push('\n');
        }
    }
    out.push('\n');
}

fn table(out: &mut String, name: &str, memory: &str, lines: &[Line], all: &Line) {
    let carries = fl_compress::memories().any(|info| info.name == memory && info.has_residual);
    let _ = writeln!(
        out,
        "{name:<24} frames    recorded  other spec     ratio       lost   cosine   lost at end  cosine at end"
    );
    for line in lines.iter().chain([all]) {
        let _ = writeln!(
            out,
            "{:<24} {:>6}  {:>10}  {:>10}  {:>8}  {:>9}  {:>7}  {:>12}  {:>13}",
            line.of,
            line.frames,
            size(line.recorded_framed),
            size(line.framed),
            or_dash(line.ratio.map(|ratio| format!("{ratio:.2}"))),
            or_dash(line.error.filter(|_| !carries).map(percent)),
            or_dash(line.cosine.map(|cosine| format!("{cosine:.4}"))),
            or_dash(line.sum_error.map(percent)),
            or_dash(line.sum_cosine.map(|cosine| format!("{cosine:.4}"))),
        );
    }
    out.push('\n');
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    #[test]
    fn rounds_are_said_as_ranges() {
        assert_eq!(super::ranges(&[1, 2, 3, 6, 8, 9]), "1-3, 6, 8-9");
        assert_eq!(super::ranges(&[u64::MAX]), u64::MAX.to_string());
        assert_eq!(super::ranges(&[]), "");
    }
}
