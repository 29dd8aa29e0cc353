//! `encode`: safetensors to an archive.

use std::path::PathBuf;
use std::sync::Arc;

use fl_compress::{Archive, FrameHeader, FrameKind, Verdict};

use crate::failure::Failure;
use crate::state::State;
use crate::{progress, read, spec, table, write};

/// Compress an update (or any tensors) into a .flz that decodes alone.
///
/// With --state, what compression leaves unsent is kept in a file and added to the next update, as a client of a
/// federation does; the file is made if it is not there, and replaced only after OUT is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Codec, as under [compression.uplink] of a run (TOML).
    #[arg(long, value_name = "S.toml")]
    spec: PathBuf,
    /// Size to aim at, in the place of `budget` of the spec: "200KiB", "0.1 bits".
    #[arg(long)]
    budget: Option<String>,
    /// Seed of random choices. That of the frame is this plus the round, so that no round repeats another's.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Round of the frame [default: one more than the last one of --state, or 0].
    #[arg(long)]
    round: Option<u64>,
    /// Memory between calls.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// What to compress.
    #[arg(value_name = "IN.safetensors")]
    input: PathBuf,
    /// Where to.
    #[arg(value_name = "OUT.flz")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let spec = spec::read(&args.spec, args.budget.as_deref())?;
    let busy = progress::start(format!("encoding {}", args.input.display()));
    let (layout, mut values) = read::values(&args.input)?;
    let layout = Arc::new(layout);
    let mut state = match &args.state {
        None => State::new(Arc::clone(&layout), &spec)?,
        Some(path) => State::load(path, Arc::clone(&layout), &spec)?,
    };
    let round = args.round.unwrap_or(state.round);
    let header = FrameHeader {
        kind: FrameKind::Update,
        round,
        seed: args.seed.wrapping_add(round),
    };
    let encoded = state.encoder.encode(&mut values, header);
    let pending = encoded.map_err(|why| Failure::input(&args.input, why))?;
    let settled = state.encoder.settle(&pending, Verdict::Accepted);
    settled.map_err(|why| Failure::input(&args.input, why))?;
    let archive = Archive::write(&layout, &pending.frame);
    write::file(&args.output, &archive)?;
    if let Some(path) = &args.state {
        state.round = round.saturating_add(1);
        state.save(path)?;
    }
    let (frame, values) = (pending.stages.framed as f64, layout.len() as f64);
    drop(busy);
    write::stdout(&format!(
        "{}: round {round}; {} tensors, {} parameters; frame of {} bytes, {} bits a parameter, ratio to fp32 {}\n",
        args.output.display(),
        layout.tensors().len(),
        table::grouped(layout.len() as u64),
        table::grouped(pending.stages.framed),
        table::or_dash(table::ratio(8.0 * frame, values)),
        table::or_dash(table::ratio(4.0 * values, frame)),
    ))
}
