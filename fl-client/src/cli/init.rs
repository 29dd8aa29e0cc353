//! `fl-client init`: seeded first weights of a run.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fl_cli::out;
use fl_compress::weights::{LEARNER, Notes, SEED};

use crate::client_file::ClientFile;
use crate::data::Input;
use crate::error::Error;
use crate::learners::{self, LearnerChoice};
use crate::trainer::{TrainerLearner, check_weights};
use crate::weights::{export_with, replace};

/// Write the first weights of a run: those of a built-in model, the same on every machine for the same seed, or a trainer's
/// own. The file of a built-in model notes the seed: a run takes it as its own where run.toml gives none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long, help = learners::help(), required_unless_present = "config", conflicts_with = "config")]
    learner: Option<LearnerChoice>,
    /// Take the trainer's own first weights, of a task of this client.toml.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The task; may be left out if there is only one.
    #[arg(long, requires = "config")]
    task: Option<String>,
    /// Seed of the weights of a built-in model.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Where to write them, as safetensors.
    #[arg(short, long)]
    output: PathBuf,
    /// Shape of an example, channels first, such as 1x28x28; by default what the learner is usually fed.
    #[arg(long, value_parser = shape, conflicts_with = "config")]
    input: Option<[usize; 3]>,
    /// Number of classes, 1 to 256; by default the learner's usual one.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "config")]
    classes: Option<u16>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    match (&args.learner, &args.config) {
        (Some(learner), _) => built_in(args, learner),
        (None, Some(config)) => trainer(args, config),
        (None, None) => Err(Error::Config("give --learner or --config".to_owned()).into()),
    }
}

fn built_in(args: &Args, learner: &LearnerChoice) -> anyhow::Result<()> {
    let usual = learner.info().input;
    let input = Input {
        shape: args.input.unwrap_or(usual.shape),
        classes: args.classes.map_or(usual.classes, usize::from),
        ..usual
    };
    let made = learner.initial_weights_for(input, args.seed);
    let (layout, weights) = made.map_err(|e| Error::Config(format!("{e:#}")))?;
    let notes = Notes::from([
        (SEED.to_owned(), args.seed.to_string()),
        (LEARNER.to_owned(), learner.to_string()),
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

fn trainer(args: &Args, config: &Path) -> anyhow::Result<()> {
    let file = ClientFile::read(config)?;
    let in_file = |why: String| Error::Config(format!("{}: {why}", config.display()));
    let task = file.task(args.task.as_deref()).map_err(in_file)?;
    let trainer = file
        .trainer_aside(task)
        .map_err(|e| in_file(format!("{e:#}; give --learner")))?;
    let mut trainer = TrainerLearner::new(trainer)?;
    let (hello, _) = trainer.hello()?;
    let bytes = trainer.own_weights_file(&hello, u64::MAX)?.with_context(|| {
        format!("the trainer of task `{task}` has no first weights: its `hello` names no file in `weights`")
    })?;
    let values = check_weights(&bytes, &hello).context("the trainer's first weights")?;
    replace(&args.output, &bytes).context("the model was not written")?;
    out::line(format_args!(
        "{}: {} tensors, {values} values of the trainer of task {task}",
        args.output.display(),
        hello.tensors.len()
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
