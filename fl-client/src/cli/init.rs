//! `fl-client init`: seeded first weights of a run.

use std::path::PathBuf;

use anyhow::Context as _;
use fl_cli::out;
use fl_compress::weights::{LEARNER, Notes, SEED};

use crate::client_file::ClientFile;
use crate::error::Error;
use crate::named::{ExampleShape, Learners, NamedLearner, of_options};
use crate::trainer::{TrainerLearner, check_weights};
use crate::weights::{export_with, replace};

/// Write the first weights of a run: those of a built-in model, the same on every machine for the same seed, or a trainer's
/// own. The file of a built-in model notes the seed: a run takes it as its own where run.toml gives none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the learner.
    #[arg(long, required_unless_present = "config", conflicts_with = "config")]
    learner: Option<String>,
    /// Take a task of this client.toml: its learner and the shape of its data, or its trainer's own first weights.
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
    /// Take the shape from these examples, as in client.toml, such as '{ csv = { file = "flowers.csv", label = "species" } }'.
    #[arg(long, requires = "learner", conflicts_with_all = ["input", "classes", "numbers"])]
    data: Option<String>,
    /// Shape of an example, channels first, such as 1x28x28, or 1x1x64 for texts of 64 tokens; by default what the learner
    /// is usually fed.
    #[arg(long, value_parser = shape, conflicts_with = "config")]
    input: Option<[usize; 3]>,
    /// Number of classes, or of tokens of the vocabulary, 1 to 1048576; by default the learner's usual one.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576), conflicts_with = "config")]
    classes: Option<u32>,
    /// How many numbers are predicted, in place of classes, 1 to 65536.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with_all = ["config", "classes"])]
    numbers: Option<u32>,
}

pub(super) fn run(args: &Args, learners: &dyn Learners) -> anyhow::Result<()> {
    match (&args.learner, &args.config) {
        (Some(learner), _) => named(args, of_options(learners, learner, args.data.as_deref())?.as_ref()),
        (None, Some(config)) => {
            let (file, task) = ClientFile::read_offline(config, learners, args.task.as_deref())?;
            match file.named(&task) {
                Some(learner) => named(args, learner.as_ref()),
                None => trainer(args, &file, &task),
            }
        }
        (None, None) => Err(Error::Config("give --learner or --config".to_owned()).into()),
    }
}

fn named(args: &Args, learner: &dyn NamedLearner) -> anyhow::Result<()> {
    let asked = ExampleShape {
        input: args.input,
        classes: args.classes,
        numbers: args.numbers,
    };
    let (layout, weights) = learner.first_weights(&asked, args.seed)?;
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

fn trainer(args: &Args, file: &ClientFile, task: &str) -> anyhow::Result<()> {
    let trainer = file.trainer_aside(task);
    let trainer = trainer.map_err(|e| Error::Config(format!("{e:#}; give --learner")))?;
    let mut trainer = TrainerLearner::new(trainer)?;
    let (hello, _) = trainer.hello()?;
    let bytes = trainer.own_weights_file(&hello, u64::MAX)?.with_context(|| {
        format!("the trainer of task `{task}` has no first weights: its `hello` names no file in `weights`")
    })?;
    let (values, infinite) = check_weights(&bytes, &hello).context("the trainer's first weights")?;
    replace(&args.output, &bytes).context("the model was not written")?;
    out::line(format_args!(
        "{}: {} tensors, {values} values of the trainer of task {task}",
        args.output.display(),
        hello.tensors.len()
    ))?;
    match infinite.is_empty() {
        true => Ok(()),
        false => out::line(format_args!(
            "infinite values cannot be trained: set `frozen = {infinite:?}` in [model] of run.toml, or `local` where each client \
             has its own"
        )),
    }
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
