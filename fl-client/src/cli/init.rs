//! `fl-client init`: seeded first weights of a run.

use std::path::PathBuf;

use anyhow::Context as _;
use fl_cli::out;
use fl_compress::weights::{LEARNER, Notes, SEED};

use crate::data::Input;
use crate::error::Error;
use crate::learners;
use crate::weights::export_with;

/// Write the first weights of a model, the same on every machine for the same seed. The file notes the seed: a run takes
/// it as its own where run.toml gives none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long, help = learners::help())]
    learner: String,
    /// Seed of the weights.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Where to write them, as safetensors.
    #[arg(short, long)]
    output: PathBuf,
    /// Shape of an example, channels first, such as 1x28x28; by default what the learner is usually fed.
    #[arg(long, value_parser = shape)]
    input: Option<[usize; 3]>,
    /// Number of classes, 1 to 256; by default the learner's usual one.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    classes: Option<u16>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let learner = learners::find(&args.learner)?;
    let usual = learner.input;
    let input = Input {
        shape: args.input.unwrap_or(usual.shape),
        classes: args.classes.map_or(usual.classes, usize::from),
    };
    let made = learner.initial_weights_for(input, args.seed);
    let (layout, weights) = made.map_err(|e| Error::Config(format!("{e:#}")))?;
    let notes = Notes::from([
        (SEED.to_owned(), args.seed.to_string()),
        (LEARNER.to_owned(), args.learner.clone()),
    ]);
    export_with(&args.output, &layout, &weights, &notes).context("the model was not written")?;
    out::line(format_args!(
        "{}: {} tensors, {} parameters, seed {}",
        args.output.display(),
        layout.tensors().len(),
        layout.len(),
        args.seed
    ))
}

/// Three extents above 0 and below 2^16, joined by `x`.
fn shape(text: &str) -> Result<[usize; 3], String> {
    let extents: Option<Vec<usize>> = text
        .split('x')
        .map(|n| n.parse().ok().filter(|n| (1..65_536).contains(n)))
        .collect();
    let extents = extents.and_then(|extents| <[usize; 3]>::try_from(extents).ok());
    extents.ok_or_else(|| "must be three numbers from 1 to 65535, such as 1x28x28".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_three_small_numbers() {
        assert_eq!(shape("1x28x28"), Ok([1, 28, 28]));
        for bad in ["", "28x28", "1x0x3", "1x2x3x4", "1xax3", "1x2x99999"] {
            assert!(shape(bad).is_err(), "{bad}");
        }
    }
}
