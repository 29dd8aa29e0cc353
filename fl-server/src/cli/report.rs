//! `fl-server report FED [RUN]`: what every round cost, for a person or as JSON.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::{Format, Outcome, out, source, what_if};
use crate::admin::{Answer, Ask};
use crate::report::{ClientLine, Report, RoundLine};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    fed: PathBuf,
    /// The run; not needed if there is only one.
    run: Option<String>,
    /// Encode the run's stored updates by this spec (as of `fl-compress encode --spec`) and show what it would have moved.
    #[arg(long, value_name = "SPEC.toml")]
    what_if: Option<PathBuf>,
    /// Threads for that; as many as there are cores if not given. Each takes the memory of a few models.
    #[arg(long, requires = "what_if", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// How to write it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// File to write to instead of stdout; replaced as a whole.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (_, config) = source::federation(&args.fed)?;
    if let Some(spec) = &args.what_if {
        let text = what_if::run(&config, args.run.as_deref(), spec, args.threads, args.format)?;
        return write(args.output.as_deref(), &text);
    }
    let Answer::Report(report) = source::ask(&config, &Ask::Report { run: args.run.clone() })? else {
        return Err(source::unexpected().into());
    };
    let text = match args.format {
        Format::Text => text(&report),
        Format::Json => serde_json::to_string_pretty(&report).context("report cannot be written as JSON")? + "\n",
    };
    write(args.output.as_deref(), &text)
}

fn write(output: Option<&Path>, text: &str) -> Outcome {
    match output {
        None => out::text(format_args!("{text}"))?,
        Some(path) => replace(path, text.as_bytes())?,
    }
    Ok(())
}

/// Writes a file beside `path` and renames it, so that `path` is never half-written.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    ensure!(
        !special,
        "{} is not a regular file and will not be replaced",
        path.display()
    );
    let side = path.with_extension(format!("tmp-{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        std::fs::write(&side, bytes)?;
        std::fs::rename(&side, path)
    };
    write()
        .inspect_err(|_| drop(std::fs::remove_file(&side)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The report for a person.
fn text(report: &Report) -> String {
    let mut out = String::new();
    let Report {
        run,
        task,
        state,
        planned,
        parameters,
        version,
        model,
        ..
    } = report;
    let _ = writeln!(
        out,
        "run {run} (task {task}): {state}; {planned} rounds planned, {parameters} parameters"
    );
    let _ = writeln!(out, "model version {version}, digest {model}\n");
    let _ = writeln!(
        out,
        "round  updates  accuracy     loss   frames up  frames down   socket up  socket down  bits up  bits down  seconds"
    );
    report.rounds.iter().for_each(|line| round(&mut out, line));
    let total = &report.total;
    let _ = writeln!(
        out,
        "total  {:>7}                    {:>10}  {:>11}  {:>10}  {:>11}                     {:>8.1}\n",
        report.rounds.iter().map(|line| line.updates).sum::<usize>(),
        size(total.frames_up()),
        size(total.frames_down()),
        size(total.socket_up),
        size(total.socket_down),
        report.rounds.iter().map(|line| line.seconds).sum::<f64>(),
    );
    let base = &report.fedavg_fp32;
    let _ = writeln!(
        out,
        "fp32 federated averaging for the same cohorts and rounds (a model down to each client asked, one up for each \
         update, one down to each client that evaluated the last): {} up, {} down: {:.1} x all frames, {:.1} x \
         everything on the sockets",
        size(base.up),
        size(base.down),
        base.frames_ratio,
        base.socket_ratio
    );
    let (up, down) = report.meter;
    let verdict = if report.balanced {
        "equal to the byte"
    } else {
        "NOT EQUAL: bytes are unaccounted for"
    };
    let _ = writeln!(
        out,
        "ledger: {} up, {} down; sockets: {up} up, {down} down; {verdict}\n",
        total.socket_up, total.socket_down
    );
    let _ = writeln!(
        out,
        "{:<24} updates   examples  train s  encode s     update      waste      steps   snapshot  socket up  socket down",
        "client"
    );
    report.clients.iter().for_each(|line| client(&mut out, line));
    out
}

fn round(out: &mut String, line: &RoundLine) {
    let accuracy = line
        .evaluation
        .map_or_else(|| "-".to_owned(), |seen| format!("{:.4}", seen.accuracy));
    let _ = writeln!(
        out,
        "{:>5}{} {:>4}/{:<3} {:>8}  {:>7.4}  {:>10}  {:>11}  {:>10}  {:>11}  {:>7.3}  {:>9.3}  {:>7.2}",
        line.round,
        if line.closed { ' ' } else { '*' },
        line.updates,
        line.cohort,
        accuracy,
        line.loss,
        size(line.flow.frames_up()),
        size(line.flow.frames_down()),
        size(line.flow.socket_up),
        size(line.flow.socket_down),
        line.bits_up,
        line.bits_down,
        line.seconds
    );
}

fn client(out: &mut String, line: &ClientLine) {
    let _ = writeln!(
        out,
        "{:<24} {:>7} {:>10} {:>8.1}  {:>8.2} {:>10} {:>10} {:>10} {:>10} {:>10}  {:>11}",
        line.client,
        line.updates,
        line.examples,
        line.train_seconds,
        line.encode_seconds,
        size(line.flow.update),
        size(line.flow.waste),
        size(line.flow.steps),
        size(line.flow.snapshot),
        size(line.flow.socket_up),
        size(line.flow.socket_down)
    );
}

/// Bytes with three digits and a unit of 1024.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (15 * 1024, "15.0 KiB"),
            (999 * 1024, "999 KiB"),
            (1000 * 1024, "0.98 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
