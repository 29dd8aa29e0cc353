//! `fl-client export`: adapters for other programs.

use std::path::PathBuf;

use anyhow::Context as _;
use fl_cli::out;

use fl_client::{Error, weights};

use super::task::TaskArgs;
use crate::registry::Registry;

/// Write the adapters of `lora` for other programs.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The adapters, as safetensors, such as `fl-server export` writes.
    model: PathBuf,
    #[command(flatten)]
    task: TaskArgs,
    /// peft: a folder with adapter_model.safetensors and adapter_config.json, which `PeftModel.from_pretrained` loads.
    #[arg(long, value_enum, default_value_t = ExportFormat::Peft)]
    format: ExportFormat,
    /// The folder to write; created if it does not exist.
    #[arg(short, long)]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ExportFormat {
    Peft,
}

pub(super) fn run(args: &Args, registry: &Registry) -> anyhow::Result<()> {
    let ExportFormat::Peft = args.format;
    let (task, _) = args.task.named(registry, "which exports its own model")?;
    let learner = &task.learner;
    let description = serde_json::to_vec_pretty(&learner.peft_config()?)?;
    let (layout, _) = learner.initial_weights_for(task.data()?.set().input()?, 0)?;
    let values = weights::import(&args.model, &layout).map_err(|e| Error::Config(format!("{e:#}")))?;
    let context = || format!("cannot write {}", args.output.display());
    std::fs::create_dir_all(&args.output).with_context(context)?;
    let adapters = args.output.join("adapter_model.safetensors");
    weights::export(&adapters, &layout, &values).with_context(context)?;
    weights::replace(&args.output.join("adapter_config.json"), &description).with_context(context)?;
    out::line(format_args!(
        "{}: adapter_model.safetensors, {} values in {} tensors, and adapter_config.json",
        args.output.display(),
        layout.len(),
        layout.tensors().len()
    ))
}
