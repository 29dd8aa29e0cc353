//! `fl-client generate`: a text that a language model continues.

use std::path::PathBuf;

use fl_cli::out;
use fl_client::{Error, Learner as _, weights};

use super::task::TaskArgs;
use crate::data::Coder;
use crate::learners::Sampling;
use crate::registry::Registry;

/// Continue a text with a language model.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model, as safetensors; of `lora`, the adapters.
    model: PathBuf,
    #[command(flatten)]
    task: TaskArgs,
    /// The text to continue.
    #[arg(long)]
    prompt: String,
    /// Tokens to add.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tokens: u32,
    /// 0 takes the most likely token each time; 1 draws by the model's probabilities, and less prefers likely ones.
    #[arg(long, default_value_t = 0.8, value_parser = temperature)]
    temperature: f64,
    /// Determines what is drawn.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

pub(super) fn run(args: &Args, registry: &Registry) -> anyhow::Result<()> {
    let (task, device) = args
        .task
        .named(registry, "and only learners of this program continue texts")?;
    let source = task.data()?;
    let data = source.load()?.compact();
    let coder = Coder::of(source, data.train.class_names())?;
    let mut learner = task.learner.build_trained(device, data)?;
    let loaded = weights::import(&args.model, &learner.layout());
    learner.load(&loaded.map_err(|e| Error::Config(format!("{e:#}")))?)?;
    let sampling = Sampling {
        temperature: args.temperature,
        seed: args.seed,
    };
    let prompt = coder.ids(&args.prompt)?;
    let mut tokens = prompt.clone();
    tokens.extend(learner.generate(&prompt, args.tokens as usize, sampling)?);
    out::line(format_args!("{}", coder.text(&tokens)?))
}

/// A number from 0 to 100.
fn temperature(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=100.0).contains(value));
    value.ok_or_else(|| "must be a number from 0 to 100".to_owned())
}
