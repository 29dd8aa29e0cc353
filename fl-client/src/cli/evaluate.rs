//! `fl-client evaluate`: a model file on held-out examples.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use fl_cli::{Format, out};
use serde_json::json;

use crate::client_file::{ClientFile, TaskEntry};
use crate::error::Error;
use crate::learner::Evaluation;
use crate::learners::{self, DeviceChoice};
use crate::weights;

/// Evaluate a model on held-out examples.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model, as safetensors.
    model: PathBuf,
    #[arg(long, help = learners::help(), requires = "data", conflicts_with = "config")]
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

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let TaskEntry { learner: name, data } = entry(args)?;
    let mut learner = learners::find(&name)?.build(args.device, data.load()?.compact())?;
    let weights = weights::import(&args.model, &learner.layout());
    let weights = weights.map_err(|e| Error::Config(format!("{e:#}")))?;
    learner.load(&weights)?;
    let Some(Evaluation {
        examples,
        loss,
        correct,
        metrics,
    }) = learner.evaluate().context("evaluation")?
    else {
        bail!("there are no held-out examples to evaluate on");
    };
    let accuracy = correct.map(|correct| correct as f64 / examples as f64);
    match args.format {
        Format::Text => {
            let mut text = match accuracy.zip(correct) {
                Some((accuracy, correct)) => {
                    format!("accuracy {accuracy:.4} ({correct} of {examples}), loss {loss:.4}")
                }
                None => format!("loss {loss:.4}, perplexity {:.4} ({examples} examples)", loss.exp()),
            };
            for (name, metric) in metrics.iter() {
                text.push_str(&format!(", {name} {:.4}", metric.value));
            }
            out::line(format_args!("{text}"))
        }
        Format::Json => {
            let metrics: BTreeMap<&str, f64> = metrics.iter().map(|(name, metric)| (name, metric.value)).collect();
            let result = json!({
                "accuracy": accuracy, "correct": correct, "examples": examples, "loss": loss, "metrics": metrics,
            });
            out::line(format_args!("{result}"))
        }
    }
}

fn entry(args: &Args) -> Result<TaskEntry, Error> {
    if let (Some(learner), Some(data)) = (&args.learner, &args.data) {
        let text = format!("learner = {}\ndata = {data}", toml::Value::from(learner.as_str()));
        return toml::from_str(&text).map_err(|e| Error::Config(format!("`--data`: {e}")));
    }
    let path = args
        .config
        .as_ref()
        .ok_or_else(|| Error::Config("give --learner and --data, or --config".to_owned()))?;
    let mut tasks = ClientFile::read(path)?.tasks;
    let known = tasks.keys().cloned().collect::<Vec<_>>().join(", ");
    let wanted = match &args.task {
        Some(task) => tasks.remove(task),
        None => tasks.pop_first().filter(|_| tasks.is_empty()).map(|(_, entry)| entry),
    };
    wanted.ok_or_else(|| Error::Config(format!("{}: `--task` must be one of: {known}", path.display())))
}
