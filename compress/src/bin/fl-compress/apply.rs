//! `apply`: adds an update to a model.

use std::path::PathBuf;

use fl_compress::weights::IntegerTensor;

use crate::failure::Failure;
use crate::limit::Limit;
use crate::{progress, read, write};

/// Write BASE plus DELTA, tensor by tensor.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    limit: Limit,
    /// Old model (safetensors).
    base: PathBuf,
    /// Update of the same tensors (safetensors or .flz).
    delta: PathBuf,
    /// Output file: the new model (safetensors).
    new: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let _busy = progress::start(format!("applying {}", args.delta.display()));
    let base = read::bytes(&args.base)?;
    let base = read::weights(&args.base, &base)?;
    let layout = base.layout();
    let mut values = read::values(&args.base, &base)?;
    let bytes = read::bytes(&args.delta)?;
    let added = |delta: &[IntegerTensor<'_>]| -> Result<Vec<IntegerTensor<'static>>, Failure> {
        let pairs = read::pairs(&args.delta, base.integers(), delta)?;
        let sums = pairs.into_iter().map(|(base, delta)| base.plus(delta));
        sums.map(|sum| sum.map_err(|why| Failure::input(&args.delta, why)))
            .collect()
    };
    let integers = if read::is_archive(&bytes) {
        let archive = read::archive(&args.delta, &bytes, &args.limit)?;
        read::same(&args.delta, &archive.layout, layout)?;
        let frame = read::frame(&args.delta, &archive)?;
        let add = frame.accumulate(1.0, &mut values);
        add.map_err(|why| read::payload(&args.delta, &archive, Some(&frame), why))?;
        added(&archive.integers)?
    } else {
        let delta = read::weights(&args.delta, &bytes)?;
        read::same(&args.delta, delta.layout(), layout)?;
        let by = read::values(&args.delta, &delta)?;
        values.iter_mut().zip(&by).for_each(|(value, delta)| *value += delta);
        added(delta.integers())?
    };
    read::all_finite(&args.delta, layout, &values)?;
    write::values(&args.new, layout, &values, &integers)
}
