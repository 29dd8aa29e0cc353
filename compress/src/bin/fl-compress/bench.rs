//! `bench`: the speed of one codec, relative to a copy of the same values on the same machine.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fl_compress::{Ack, Encoder, Error, Frame, FrameHeader, FrameKind, Layout, Spec};
use serde::Serialize;

use crate::failure::Failure;
use crate::table::{Table, grouped, or_dash, ratio};
use crate::{progress, spec, write};

/// Measure encode and decode on one thread, and a copy of the same values for comparison.
///
/// The values are heavy-tailed and deterministic, in four layers of different scale. Decoding includes the checks of
/// the frame.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of values.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(4..=1_000_000_000))]
    values: u32,
    /// Spec file [default: the default codec of a run].
    #[arg(long, value_name = "S.toml")]
    spec: Option<PathBuf>,
    /// Number of measurements.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Output format: a table, or JSON for scripts.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// The keys of `--format json`: part of the documented interface, checked by tests.
#[derive(Debug, Serialize)]
struct Report {
    spec: String,
    values: usize,
    fp32_bytes: u64,
    frame_bytes: u64,
    repetitions: u32,
    memcpy: Speed,
    encode: Speed,
    decode: Speed,
}

#[derive(Debug, Serialize)]
struct Speed {
    best: Rate,
    median: Rate,
}

#[derive(Debug, Serialize)]
struct Rate {
    mb_s: Option<f64>,
    values_s: Option<f64>,
    /// The ratio is the same for bytes and values.
    of_memcpy: Option<f64>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (name, spec) = match &args.spec {
        None => ("default".to_owned(), Spec::default()),
        Some(path) => (path.display().to_string(), spec::read(path, None)?),
    };
    let busy = progress::start(format!("measuring {} values", args.values));
    let times = measure(args, &spec).map_err(|why| Failure::Usage(format!("spec {name}: {why}")))?;
    let len = args.values as usize;
    let [memcpy, encode, decode] = [&times.memcpy, &times.encode, &times.decode].map(|of| best_and_median(of));
    let speed = |of: [f64; 2]| {
        let [best, median] = [(of[0], memcpy[0]), (of[1], memcpy[1])].map(|(seconds, memcpy)| Rate {
            mb_s: ratio(4e-6 * len as f64, seconds),
            values_s: ratio(len as f64, seconds),
            of_memcpy: ratio(memcpy, seconds),
        });
        Speed { best, median }
    };
    let report = Report {
        spec: name,
        values: len,
        fp32_bytes: 4 * len as u64,
        frame_bytes: times.frame_bytes,
        repetitions: args.repetitions,
        memcpy: speed(memcpy),
        encode: speed(encode),
        decode: speed(decode),
    };
    drop(busy);
    write::stdout(&match args.format {
        Format::Text => text(&report),
        Format::Json => write::json(&report),
    })
}

#[derive(Debug, Default)]
struct Times {
    memcpy: Vec<Duration>,
    encode: Vec<Duration>,
    decode: Vec<Duration>,
    frame_bytes: u64,
}

/// Alternates copy, encode and decode, so that other load on the machine affects all three equally.
fn measure(args: &Args, spec: &Spec) -> Result<Times, Error> {
    let len = args.values as usize;
    let layout = Arc::new(layout(len)?);
    let values = heavy_tailed(len);
    let mut encoder = Encoder::new(Arc::clone(&layout), spec)?;
    let mut delta = vec![1.0; len];
    let mut decoded = vec![1.0; len];
    let mut times = Times::default();
    for round in 0..u64::from(args.repetitions) {
        let began = Instant::now();
        black_box(&mut delta).copy_from_slice(black_box(&values));
        times.memcpy.push(began.elapsed());
        let header = FrameHeader {
            kind: FrameKind::Update,
            round,
            seed: round,
        };
        let began = Instant::now();
        let pending = encoder.encode(&mut delta, header)?;
        times.encode.push(began.elapsed());
        let began = Instant::now();
        Frame::parse(&pending.frame, &layout)?.decode(&mut decoded)?;
        times.decode.push(began.elapsed());
        encoder.settle(&pending, Ack::Accepted)?;
        times.frame_bytes = pending.stages.framed;
    }
    Ok(times)
}

/// Four matrices of equal size, and a tensor of the remaining values.
fn layout(len: usize) -> Result<Layout, Error> {
    let quarter = len / 4;
    let cols = (1..=512).rev().find(|&cols| quarter.is_multiple_of(cols)).unwrap_or(1);
    let layers = (0..4).map(|layer| (format!("layer{layer}"), vec![quarter / cols, cols]));
    let rest = (!len.is_multiple_of(4)).then(|| ("rest".to_owned(), vec![len % 4]));
    Layout::new(layers.chain(rest))
}

/// Ratios of uniform numbers from a linear congruential generator (Knuth's constants).
fn heavy_tailed(len: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut unit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0
    };
    (0..len)
        .map(|i| (unit() - 0.5) / (unit() + 0.05) * (1 << (i * 4 / len)) as f32 * 1e-3)
        .collect()
}

/// Best and median time in seconds.
fn best_and_median(times: &[Duration]) -> [f64; 2] {
    let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    [0, middle].map(|at| seconds.get(at).copied().unwrap_or_default())
}

fn text(report: &Report) -> String {
    let mut table = Table::new(
        1,
        &[
            "",
            "best MB/s",
            "Mvalues/s",
            "of memcpy",
            "median MB/s",
            "Mvalues/s",
            "of memcpy",
        ],
    );
    let rows = [
        ("memcpy", &report.memcpy),
        ("encode", &report.encode),
        ("decode", &report.decode),
    ];
    for (name, speed) in rows {
        let mut row = vec![name.to_owned()];
        for rate in [&speed.best, &speed.median] {
            row.push(or_dash(rate.mb_s));
            row.push(or_dash(rate.values_s.map(|rate| rate / 1e6)));
            row.push(or_dash(rate.of_memcpy));
        }
        table.row(row);
    }
    format!(
        "spec {}: {} values, {} bytes as fp32, frame of {} bytes; {} repetitions on one thread\n\n{}",
        report.spec,
        grouped(report.values as u64),
        grouped(report.fp32_bytes),
        grouped(report.frame_bytes),
        report.repetitions,
        table.render()
    )
}
