//! `fl-client generate`: a text that a language model continues.

use std::path::PathBuf;

use fl_cli::out;

use crate::client_file::ClientFile;
use crate::data::Coder;
use crate::error::Error;
use crate::learner::Learner as _;
use crate::learners::Sampling;
use crate::weights;

/// Continue a text with a language model.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model, as safetensors; of `lora`, the adapters.
    model: PathBuf,
    /// Take learner and vocabulary from a task of this client.toml.
    #[arg(long)]
    config: PathBuf,
    /// The task; may be left out if there is only one.
    #[arg(long)]
    task: Option<String>,
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

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let file = ClientFile::read_offline(&args.config)?;
    let in_file = |why: String| Error::Config(format!("{}: {why}", args.config.display()));
    let task = file.task(args.task.as_deref()).map_err(in_file)?;
    let Some((learner, source)) = file.tasks[task].built_in() else {
        return Err(in_file(format!(
            "task `{task}` has a trainer; only built-in learners continue texts"
        ))
        .into());
    };
    let data = source.load()?.compact();
    let coder = Coder::of(source, data.train.class_names())?;
    let mut learner = learner.build_trained(file.device, data)?;
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
