//! `inspect`: the size of each plane of an archive, and its lower bound.

use std::path::PathBuf;

use clap::ValueEnum;
use fl_compress::weights::IntegerTensor;
use fl_compress::{Frame, PlaneBounds, PlaneBytes};
use serde::Serialize;

use crate::failure::Failure;
use crate::limit::Limit;
use crate::table::{Table, grouped, or_dash, ratio, significant};
use crate::{progress, read, words, write};

/// Show the recipe of each tensor of a .flz, and the size and lower bound of its planes.
///
/// The bound of an entropy-coded plane is its order-0 entropy, that of an index plane is the logarithm of the number of
/// index sets of the same size, and that of a packed plane is its size.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    limit: Limit,
    /// Archive to inspect.
    #[arg(value_name = "OUT.flz")]
    input: PathBuf,
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
    file: String,
    kind: &'static str,
    round: u64,
    seed: u64,
    parameters: usize,
    fp32_bytes: u64,
    file_bytes: usize,
    frame_bytes: usize,
    /// Size in fp32 / size of the frame.
    ratio: Option<f64>,
    bits_per_parameter: Option<f64>,
    tensors: Vec<TensorReport>,
    totals: Planes,
    /// Integer and Boolean tensors, which are stored unchanged.
    integers: Vec<IntegerReport>,
}

#[derive(Debug, Serialize)]
struct IntegerReport {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: usize,
}

impl IntegerReport {
    fn new(tensor: &IntegerTensor<'_>) -> Self {
        Self {
            name: tensor.name.clone(),
            dtype: tensor.dtype(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes().len(),
        }
    }
}

#[derive(Debug, Serialize)]
struct TensorReport {
    /// Name of the tensor, or the number of small tensors merged into the section.
    name: String,
    names: Vec<String>,
    shape: Vec<usize>,
    parameters: usize,
    recipe: String,
    #[serde(flatten)]
    planes: Planes,
    /// Size in fp32 / size of the section.
    ratio: Option<f64>,
}

#[derive(Debug, Default, Serialize)]
struct Planes {
    bytes: Bytes,
    bound: Bounds,
}

#[derive(Debug, Default, Serialize)]
struct Bytes {
    recipe: usize,
    indices: usize,
    scales: usize,
    values: usize,
    total: usize,
}

#[derive(Debug, Default, Serialize)]
struct Bounds {
    indices: f64,
    scales: f64,
    values: f64,
    total: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let busy = progress::start(format!("reading {}", args.input.display()));
    let bytes = read::bytes(&args.input)?;
    let archive = read::archive(&args.input, &bytes, &args.limit)?;
    let frame = read::frame(&args.input, &archive)?;
    let report = Report {
        file: args.input.display().to_string(),
        file_bytes: bytes.len(),
        frame_bytes: archive.frame.len(),
        integers: archive.integers.iter().map(IntegerReport::new).collect(),
        ..report(&frame).map_err(|why| read::payload(&args.input, &archive, Some(&frame), why))?
    };
    let report = Report {
        ratio: ratio(report.fp32_bytes as f64, report.frame_bytes as f64),
        bits_per_parameter: ratio(8.0 * report.frame_bytes as f64, report.parameters as f64),
        ..report
    };
    drop(busy);
    write::stdout(&match args.format {
        Format::Text => text(&report),
        Format::Json => write::json(&report),
    })
}

fn report(frame: &Frame<'_>) -> Result<Report, fl_compress::Error> {
    frame.verify()?;
    let mut totals = Planes::default();
    let mut tensors = Vec::new();
    for (section, bound) in frame.sections().zip(frame.bounds()?) {
        let planes = Planes::new(section.bytes, bound);
        totals.add(&planes);
        let names: Vec<String> = section.tensors.iter().map(|tensor| tensor.name.clone()).collect();
        let parameters = section.tensors.iter().map(|tensor| tensor.len).sum();
        let (name, shape) = match section.tensors.as_slice() {
            [tensor] => (tensor.name.clone(), tensor.shape.clone()),
            small => (format!("{} small", small.len()), vec![parameters]),
        };
        tensors.push(TensorReport {
            name,
            names,
            shape,
            parameters,
            recipe: words::recipe(&section.recipe, parameters),
            ratio: ratio(4.0 * parameters as f64, planes.bytes.total as f64),
            planes,
        });
    }
    let header = frame.header();
    let parameters = tensors.iter().map(|tensor| tensor.parameters).sum();
    Ok(Report {
        file: String::new(),
        kind: words::kind(header.kind),
        round: header.round,
        seed: header.seed,
        parameters,
        fp32_bytes: 4 * parameters as u64,
        file_bytes: 0,
        frame_bytes: 0,
        ratio: None,
        bits_per_parameter: None,
        tensors,
        totals,
        integers: Vec::new(),
    })
}

impl Planes {
    fn new(bytes: PlaneBytes, bound: PlaneBounds) -> Self {
        Self {
            bytes: Bytes {
                recipe: bytes.recipe,
                indices: bytes.indices,
                scales: bytes.scales,
                values: bytes.values,
                total: bytes.total(),
            },
            bound: Bounds {
                indices: bound.indices,
                scales: bound.scales,
                values: bound.values,
                total: bound.total(),
            },
        }
    }

    fn add(&mut self, other: &Self) {
        self.bytes.recipe += other.bytes.recipe;
        self.bytes.indices += other.bytes.indices;
        self.bytes.scales += other.bytes.scales;
        self.bytes.values += other.bytes.values;
        self.bytes.total += other.bytes.total;
        self.bound.indices += other.bound.indices;
        self.bound.scales += other.bound.scales;
        self.bound.values += other.bound.values;
        self.bound.total += other.bound.total;
    }

    /// Size of each plane, with its lower bound in parentheses.
    fn cells(&self) -> Vec<String> {
        let cell = |bytes: usize, bound: f64| match bytes {
            0 => "-".to_owned(),
            _ => format!("{} ({})", grouped(bytes as u64), grouped(bound.ceil() as u64)),
        };
        vec![
            cell(self.bytes.indices, self.bound.indices),
            cell(self.bytes.scales, self.bound.scales),
            cell(self.bytes.values, self.bound.values),
            cell(self.bytes.total, self.bound.total),
        ]
    }
}

fn text(report: &Report) -> String {
    let mut table = Table::new(
        3,
        &[
            "tensor", "shape", "recipe", "indices", "scales", "values", "section", "ratio",
        ],
    );
    for tensor in &report.tensors {
        let extents: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
        let mut row = vec![
            tensor.name.clone(),
            format!("[{}]", extents.join(", ")),
            tensor.recipe.clone(),
        ];
        row.extend(tensor.planes.cells());
        row.push(or_dash(tensor.ratio));
        table.row(row);
    }
    for tensor in &report.integers {
        let shape = format!("{:?}", tensor.shape);
        let mut row = vec![tensor.name.clone(), shape, format!("{}, unchanged", tensor.dtype)];
        row.extend(["-".to_owned(), "-".to_owned(), grouped(tensor.bytes as u64)]);
        table.row(row);
    }
    let mut row = vec!["total".to_owned(), String::new(), String::new()];
    row.extend(report.totals.cells());
    let sections = report.totals.bytes.total as f64;
    row.push(or_dash(ratio(report.fp32_bytes as f64, sections)));
    table.row(row);
    format!(
        "{}: {} of round {}, seed {}; {} sections, {} parameters\n\
         frame of {} bytes, {} bits per parameter, ratio to fp32 {}; file of {} bytes\n\
         bytes of each plane, with its order-0 bound in parentheses\n\n{}",
        report.file,
        report.kind,
        report.round,
        report.seed,
        report.tensors.len(),
        grouped(report.parameters as u64),
        grouped(report.frame_bytes as u64),
        report.bits_per_parameter.map_or_else(|| "-".to_owned(), significant),
        or_dash(report.ratio),
        grouped(report.file_bytes as u64),
        table.render(),
    )
}
