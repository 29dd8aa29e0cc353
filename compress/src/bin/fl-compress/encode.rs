//! `encode`: encodes safetensors to an archive.

use std::path::PathBuf;
use std::sync::Arc;

use fl_compress::{Ack, Archive, Encoder, Frame, FrameHeader, FrameKind, Pending};

use crate::failure::Failure;
use crate::fidelity::{Fidelity, Sums};
use crate::state::State;
use crate::{progress, read, spec, table, write};

// `encode` warns above this relative error.
const LARGE_ERROR: f64 = 0.5;

// `encode` warns if the frame exceeds its budget by this factor. Smaller excesses are normal, as the rate controller
// is accurate to a few percent.
const SLACK: f64 = 1.05;

/// Compress an update (or any tensors) into a self-contained .flz.
///
/// Integer and Boolean tensors are stored unchanged. Prints the relative error |x - y| / |x| and the cosine between the
/// input x and the decoded frame y. Warns on stderr if the relative error is above 0.5, and if the budget cannot be
/// met.
///
/// With --state, the residual is kept in a file and added to the next update, as a client of a federation does. The
/// file is created if it does not exist, and replaced only after OUT is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Spec file (TOML): the keys of [compression.uplink] of a run.
    #[arg(long, value_name = "S.toml")]
    spec: PathBuf,
    /// Target size, which replaces `budget` of the spec: "200KiB", "0.1 bits".
    #[arg(long)]
    budget: Option<String>,
    /// Base seed: the seed of the frame is SEED plus the round, so that no two rounds share a seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Round of the frame [default: one more than the last round in --state, or 0].
    #[arg(long)]
    round: Option<u64>,
    /// State file that carries the residual to the next call.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Tensors to compress.
    #[arg(value_name = "IN.safetensors")]
    input: PathBuf,
    /// Output file.
    #[arg(value_name = "OUT.flz")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let spec = spec::read(&args.spec, args.budget.as_deref())?;
    write::apart(&args.input, &args.output)?;
    let busy = progress::start(format!("encoding {}", args.input.display()));
    let bytes = read::bytes(&args.input)?;
    let weights = read::weights(&args.input, &bytes)?;
    let mut values = read::values(&args.input, &weights)?;
    let layout = Arc::new(weights.layout().clone());
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
    let settled = state.encoder.settle(&pending, Ack::Accepted);
    settled.map_err(|why| Failure::input(&args.input, why))?;
    let fidelity = fidelity(&state.encoder, &pending, &values).map_err(|why| Failure::input(&args.input, why))?;
    let archive = Archive::write(&layout, &pending.frame, weights.integers());
    write::file(&args.output, &archive)?;
    if let Some(path) = &args.state {
        state.round = round.saturating_add(1);
        state.save(path)?;
    }
    let frame = pending.stages.framed as f64;
    let values = layout.len() as f64;
    drop(busy);
    let integers = match weights.integers().len() {
        0 => String::new(),
        count => format!(" and {count} integer tensors (unchanged)"),
    };
    write::stdout(&format!(
        "{}: round {round}; {} tensors{integers}, {} parameters; frame of {} bytes, {} bits per parameter, ratio to fp32 {}; \
         relative error {}, cosine {}\n",
        args.output.display(),
        layout.tensors().len(),
        table::grouped(layout.len() as u64),
        table::grouped(pending.stages.framed),
        table::or_dash(table::ratio(8.0 * frame, values)),
        table::or_dash(table::ratio(4.0 * values, frame)),
        table::or_dash(fidelity.relative_error),
        table::or_dash(fidelity.cosine),
    ))?;
    let asked = spec.budget.map(|budget| budget.bytes(layout.len()));
    if let Some(asked) = asked.filter(|&asked| frame > SLACK * asked as f64) {
        write::warning(&format!(
            "{}: the budget is {} bytes, but the smallest frame of this spec is {} bytes ({} bits per parameter): raise \
             the budget, or use codecs with a step or a density (dead_zone, top_k)",
            args.output.display(),
            table::grouped(asked),
            table::grouped(pending.stages.framed),
            table::or_dash(table::ratio(8.0 * frame, values)),
        ));
    }
    if let Some(error) = fidelity.relative_error.filter(|&error| error > LARGE_ERROR) {
        let later = match state.encoder.residual() {
            Some(_) if args.state.is_some() => "; the rest is added to the next update",
            _ => "; the rest is lost",
        };
        write::warning(&format!(
            "{}: relative error {}: the frame carries only part of the update{later}; raise the budget, or choose a \
             more precise spec (`fl-compress compare` compares specs)",
            args.output.display(),
            table::significant(error)
        ));
    }
    Ok(())
}

/// Fidelity of the frame to the input of the encoder: the update plus the memory. `unsent` is the part that the frame
/// does not carry; the residual of the encoder takes precedence.
fn fidelity(encoder: &Encoder, pending: &Pending, unsent: &[f32]) -> Result<Fidelity, fl_compress::Error> {
    let mut sums = Sums::default();
    let unsent = encoder.residual().unwrap_or(unsent);
    let frame = Frame::parse(&pending.frame, encoder.layout())?;
    frame.decode_each::<fl_compress::Error>(|tensor, decoded| {
        let unsent = &unsent[tensor.offset..tensor.offset + tensor.len];
        let encoded = unsent.iter().zip(decoded).map(|(unsent, decoded)| unsent + decoded);
        sums.add(encoded, decoded);
        Ok(())
    })?;
    Ok(sums.fidelity())
}
