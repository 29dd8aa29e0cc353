//! `compare`: several codecs on the same tensors, as a table, JSON or a page.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fl_compress::{Encoder, Error, Frame, FrameHeader, FrameKind, Layout, Pending, Spec};
use serde::Serialize;

use crate::failure::Failure;
use crate::fidelity::Fidelity;
use crate::table::{Table, grouped, or_dash, ratio};
use crate::{progress, read, spec, write};

/// Encode the same tensors with several specs and compare sizes, errors and speeds.
///
/// Each spec starts with an empty memory. Speeds are the best of a few repetitions on one thread, in 10^6 bytes of fp32
/// per second.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tensors to compress.
    #[arg(value_name = "IN.safetensors")]
    input: PathBuf,
    /// Spec file; repeat the option for more specs.
    #[arg(long = "spec", required = true, value_name = "S.toml")]
    specs: Vec<PathBuf>,
    /// Seed of the frame.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Output format: a table, JSON for scripts, or a page with the table and a chart of error against bits per
    /// parameter.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Output file [default: stdout].
    #[arg(short, long)]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Html,
}

/// The keys of `--format json`: part of the documented interface, checked by tests. The page has the same data.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    parameters: usize,
    fp32_bytes: u64,
    specs: Vec<SpecReport>,
}

#[derive(Debug, Serialize)]
struct SpecReport {
    spec: String,
    /// Size of the frame.
    bytes: u64,
    ratio: Option<f64>,
    bits_per_parameter: Option<f64>,
    bound_bytes: f64,
    coded_over_bound: Option<f64>,
    relative_error: Option<f64>,
    cosine: Option<f64>,
    encode_mb_s: Option<f64>,
    decode_mb_s: Option<f64>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let parsed: Result<Vec<Spec>, Failure> = args.specs.iter().map(|path| spec::read(path, None)).collect();
    let parsed = parsed?;
    let bytes = read::bytes(&args.input)?;
    let weights = read::weights(&args.input, &bytes)?;
    let values = read::values(&args.input, &weights)?;
    let layout = Arc::new(weights.layout().clone());
    let header = FrameHeader {
        kind: FrameKind::Update,
        round: 0,
        seed: args.seed,
    };
    let mut specs = Vec::new();
    for (path, (name, spec)) in args.specs.iter().zip(names(&args.specs).into_iter().zip(&parsed)) {
        let _busy = progress::start(format!("encoding by {}", path.display()));
        let trial = Trial::run(&layout, spec, &values, header);
        let trial = trial.map_err(|why| Failure::Usage(format!("spec {}: {why}", path.display())))?;
        specs.push(trial.report(name, &values));
    }
    let report = Report {
        file: args.input.display().to_string(),
        parameters: layout.len(),
        fp32_bytes: 4 * layout.len() as u64,
        specs,
    };
    let text = match args.format {
        Format::Text => text(&report),
        Format::Json => write::json(&report),
        Format::Html => page(&report),
    };
    match &args.output {
        None => write::stdout(&text),
        Some(path) => write::file(path, text.as_bytes()),
    }
}

/// The file name without its extension, or the whole path if that name is not unique.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let stems: Vec<String> = paths
        .iter()
        .map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    stems
        .iter()
        .zip(paths)
        .map(|(name, path)| {
            if stems.iter().filter(|other| *other == name).count() == 1 {
                name.clone()
            } else {
                path.display().to_string()
            }
        })
        .collect()
}

/// The result of one codec, and its speed.
struct Trial {
    pending: Pending,
    decoded: Vec<f32>,
    encode: Duration,
    decode: Duration,
}

impl Trial {
    // Maximum number of repetitions, and the time after which no new one starts.
    const REPETITIONS: usize = 5;
    const ENOUGH: Duration = Duration::from_secs(2);

    fn run(layout: &Arc<Layout>, spec: &Spec, values: &[f32], header: FrameHeader) -> Result<Self, Error> {
        let began = Instant::now();
        let mut best: Option<Self> = None;
        for _ in 0..Self::REPETITIONS {
            let trial = Self::once(layout, spec, values, header)?;
            best = Some(match best {
                None => trial,
                Some(best) => Self {
                    encode: best.encode.min(trial.encode),
                    decode: best.decode.min(trial.decode),
                    ..trial
                },
            });
            if began.elapsed() > Self::ENOUGH {
                break;
            }
        }
        best.ok_or_else(|| Error::Usage("no repetition".to_owned()))
    }

    fn once(layout: &Arc<Layout>, spec: &Spec, values: &[f32], header: FrameHeader) -> Result<Self, Error> {
        let mut encoder = Encoder::new(Arc::clone(layout), spec)?;
        let mut delta = values.to_vec();
        let began = Instant::now();
        let pending = encoder.encode(&mut delta, header)?;
        let encode = began.elapsed();
        let mut decoded = delta;
        let began = Instant::now();
        Frame::parse(&pending.frame, layout)?.decode(&mut decoded)?;
        let decode = began.elapsed();
        Ok(Self {
            pending,
            decoded,
            encode,
            decode,
        })
    }

    fn report(&self, spec: String, values: &[f32]) -> SpecReport {
        let stages = self.pending.stages;
        let Fidelity { relative_error, cosine } = Fidelity::of(values, &self.decoded);
        let framed = stages.framed as f64;
        let mb = stages.fp32 as f64 / 1e6;
        SpecReport {
            spec,
            bytes: stages.framed,
            ratio: ratio(stages.fp32 as f64, framed),
            bits_per_parameter: ratio(8.0 * framed, values.len() as f64),
            bound_bytes: stages.entropy_bound,
            coded_over_bound: ratio(stages.coded as f64, stages.entropy_bound),
            relative_error,
            cosine,
            encode_mb_s: ratio(mb, self.encode.as_secs_f64()),
            decode_mb_s: ratio(mb, self.decode.as_secs_f64()),
        }
    }
}

fn text(report: &Report) -> String {
    let mut table = Table::new(
        1,
        &[
            "spec",
            "bytes",
            "ratio",
            "bits/param",
            "coded/bound",
            "rel. error",
            "cosine",
            "encode MB/s",
            "decode MB/s",
        ],
    );
    for spec in &report.specs {
        table.row(vec![
            spec.spec.clone(),
            grouped(spec.bytes),
            or_dash(spec.ratio),
            or_dash(spec.bits_per_parameter),
            spec.coded_over_bound
                .map_or_else(|| "-".to_owned(), |over| format!("{over:.3}")),
            or_dash(spec.relative_error),
            spec.cosine
                .map_or_else(|| "-".to_owned(), |cosine| format!("{cosine:.5}")),
            or_dash(spec.encode_mb_s),
            or_dash(spec.decode_mb_s),
        ]);
    }
    format!(
        "{}: {} parameters, {} bytes as fp32\n\n{}",
        report.file,
        grouped(report.parameters as u64),
        grouped(report.fp32_bytes),
        table.render()
    )
}

fn page(report: &Report) -> String {
    let title = format!("{}: codecs", report.file);
    let page = fl_page::COMPARE.with_data(&title, report);
    page.expect("reports hold strings, numbers and lists")
}
