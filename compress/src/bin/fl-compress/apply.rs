//! `apply`: a model and an update to the next model.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::{progress, read, write};

/// Write BASE plus DELTA, tensor by tensor.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Model before (safetensors).
    base: PathBuf,
    /// Update of the same tensors: safetensors, or a .flz.
    delta: PathBuf,
    /// Where to write the model after.
    new: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let _busy = progress::start(format!("applying {}", args.delta.display()));
    let (layout, mut values) = read::values(&args.base)?;
    let bytes = read::bytes(&args.delta)?;
    let delta = if read::is_archive(&bytes) {
        let archive = read::archive(&args.delta, &bytes)?;
        read::same(&args.delta, &archive.layout, &layout)?;
        read::decode(&args.delta, &archive)?
    } else {
        read::values_of(&args.delta, &layout)?
    };
    values.iter_mut().zip(&delta).for_each(|(value, delta)| *value += delta);
    read::all_finite(&args.delta, &layout, &values)?;
    write::values(&args.new, &layout, &values)
}
