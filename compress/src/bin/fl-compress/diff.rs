//! `diff`: the update that leads from one model to another.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::{progress, read, write};

/// Write NEW minus OLD, tensor by tensor.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Model before (safetensors).
    old: PathBuf,
    /// Model after, with the same tensors.
    new: PathBuf,
    /// Where to write the update.
    delta: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let _busy = progress::start(format!("reading {}", args.new.display()));
    let (layout, old) = read::values(&args.old)?;
    let mut delta = read::values_of(&args.new, &layout)?;
    delta.iter_mut().zip(&old).for_each(|(new, old)| *new -= old);
    read::all_finite(&args.new, &layout, &delta)?;
    write::values(&args.delta, &layout, &delta)
}
