//! `fl-client evaluate`: a model file on held-out examples.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use fl_cli::{Format, out};
use fl_compress::weights::TensorFile;
use serde_json::json;

use crate::client_file::ClientFile;
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::learner::{Evaluation, Learner as _};
use crate::named::{Learners, NamedLearner, of_options};
use crate::trainer::{TrainerConfig, TrainerLearner, own_run};
use crate::weights;

/// Evaluate a model on held-out examples.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model, as safetensors.
    model: PathBuf,
    /// Name of the learner.
    #[arg(long, requires = "data", conflicts_with = "config")]
    learner: Option<String>,
    /// The examples, as in client.toml, such as '{ idx = { dir = "data/fashion-mnist" } }'.
    #[arg(long, requires = "learner")]
    data: Option<String>,
    /// Take learner and data from a task of this client.toml.
    #[arg(long, required_unless_present = "learner")]
    config: Option<PathBuf>,
    /// The task; may be left out if there is only one.
    #[arg(long, requires = "config")]
    task: Option<String>,
    /// Where to compute: auto, cpu, cuda:0.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// How the result is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(super) fn run(args: &Args, learners: &dyn Learners) -> anyhow::Result<()> {
    let evaluation = match (&args.learner, &args.config) {
        (Some(learner), _) => named(args, of_options(learners, learner, args.data.as_deref())?.as_ref())?,
        (None, Some(config)) => {
            let (file, task) = ClientFile::read_offline(config, learners, args.task.as_deref())?;
            match file.named(&task) {
                Some(learner) => named(args, learner.as_ref())?,
                None => trainer(args, &task, file.trainer_aside(&task)?)?,
            }
        }
        (None, None) => return Err(Error::Config("give --learner and --data, or --config".to_owned()).into()),
    };
    let Some(evaluation) = evaluation else {
        bail!("there are no held-out examples to evaluate on");
    };
    match args.format {
        Format::Text => out::line(format_args!("{}", text_of(&evaluation))),
        Format::Json => {
            let metrics = evaluation.metrics.iter().map(|(name, metric)| (name, metric.value));
            let metrics: BTreeMap<&str, f64> = metrics.collect();
            let perplexity = evaluation.perplexity();
            let result = json!({
                "accuracy": evaluation.accuracy(), "correct": evaluation.correct, "examples": evaluation.examples,
                "loss": evaluation.loss, "metrics": metrics, "perplexity": perplexity,
            });
            out::line(format_args!("{result}"))
        }
    }
}

fn named(args: &Args, learner: &dyn NamedLearner) -> anyhow::Result<Option<Evaluation>> {
    let mut learner = learner.build(args.device, None)?;
    let weights = weights::import(&args.model, &learner.layout());
    let weights = weights.map_err(|e| Error::Config(format!("{e:#}")))?;
    learner.load(&weights)?;
    learner.evaluate().context("evaluation")
}

/// Tensors of the trainer that the model file does not have belong to a base model, which the trainer has itself.
fn trainer(args: &Args, task: &str, config: TrainerConfig) -> anyhow::Result<Option<Evaluation>> {
    let refused = |e: anyhow::Error| Error::Config(format!("{e:#}"));
    let context = || format!("cannot use {} as a model", args.model.display());
    let bytes = std::fs::read(&args.model).with_context(context).map_err(refused)?;
    let file = TensorFile::parse(&bytes).with_context(context).map_err(refused)?;
    let mut trainer = TrainerLearner::new(config)?;
    let (hello, _) = trainer.hello()?;
    let run = own_run(task, &hello, |name| file.tensors().any(|(found, _)| found == name))?;
    let mut weights = vec![0.0; run.layout.len()];
    file.values(&run.layout, &mut weights)
        .with_context(context)
        .map_err(refused)?;
    trainer.join(&run)?;
    trainer.load(&weights)?;
    trainer.evaluate().context("evaluation")
}

/// An evaluation for people.
pub(super) fn text_of(evaluation: &Evaluation) -> String {
    let Evaluation {
        examples,
        loss,
        correct,
        metrics,
        ..
    } = evaluation;
    let what = if metrics.get("token_accuracy").is_some() {
        "tokens"
    } else {
        "examples"
    };
    let mut text = match evaluation.accuracy().zip(*correct) {
        Some((accuracy, correct)) => format!("accuracy {accuracy:.4} ({correct} of {examples}), loss {loss:.4}"),
        None => match evaluation.perplexity() {
            Some(perplexity) => format!("loss {loss:.4}, perplexity {perplexity:.4} ({examples} {what})"),
            None => format!("loss {loss:.4} ({examples} examples)"),
        },
    };
    for (name, metric) in metrics.iter() {
        text.push_str(&format!(", {name} {:.4}", metric.value));
    }
    text
}
