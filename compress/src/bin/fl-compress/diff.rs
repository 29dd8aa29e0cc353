//! `diff`: subtracts one model from another.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::{progress, read, write};

/// Write NEW minus OLD, tensor by tensor.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Old model (safetensors).
    old: PathBuf,
    /// New model with the same tensors (safetensors).
    new: PathBuf,
    /// Output file: the update (safetensors).
    delta: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let _busy = progress::start(format!("reading {}", args.new.display()));
    let old = read::bytes(&args.old)?;
    let new = read::bytes(&args.new)?;
    let old = read::weights(&args.old, &old)?;
    let new = read::weights(&args.new, &new)?;
    let layout = old.layout();
    read::same(&args.new, new.layout(), layout)?;
    let before = read::values(&args.old, &old)?;
    let mut delta = read::values(&args.new, &new)?;
    delta.iter_mut().zip(&before).for_each(|(new, old)| *new -= old);
    read::all_finite(&args.new, layout, &delta)?;
    let pairs = read::pairs(&args.new, old.integers(), new.integers())?;
    let integers: Result<Vec<_>, Failure> = pairs
        .into_iter()
        .map(|(old, new)| new.minus(old).map_err(|why| Failure::input(&args.new, why)))
        .collect();
    write::values(&args.delta, layout, &delta, &integers?)
}
