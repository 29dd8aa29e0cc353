//! `fl-server export FED [RUN] -o FILE`: a model as safetensors, each tensor in its own type, its digest checked.

use std::path::PathBuf;

use anyhow::Context;
use fl_cli::out;
use fl_compress::weights::{FilePlan, Notes, TensorFile};
use fl_compress::{Average, Digest, Role, TensorSpec};

use crate::admin::socket::{Answer, Ask};
use crate::cli::failure::Outcome;
use crate::cli::{source, write};
use crate::model::stored_frames::{Assembled, assemble};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    fed: PathBuf,
    /// The run; not needed if there is only one.
    run: Option<String>,
    /// Model version: the number of rounds behind it. The newest if not given.
    #[arg(long)]
    version: Option<u64>,
    /// Write a mean of the last versions instead of one version: `last=N` or `ema=DECAY`, as `average` of run.toml.
    #[arg(long)]
    average: Option<Average>,
    /// File to write; replaced as a whole.
    #[arg(short, long)]
    output: PathBuf,
}

pub(super) fn run(args: &Args) -> Outcome {
    let config = source::config(&args.fed)?;
    let ask = Ask::Model {
        run: args.run.clone(),
        version: args.version,
    };
    let Answer::Model(parts) = source::ask(&config, &ask)? else {
        return Err(source::unexpected().into());
    };
    let Assembled { layout, values, base } = assemble(&config.data, &parts, args.average)?;
    let file = match &base {
        Some(base) => Some(TensorFile::parse(base).context("the frozen tensors of the run")?),
        None => None,
    };
    let aside = parts.aside.iter().map(|tensor| &tensor.0);
    // Of a run with `train.space`, the frozen tensors are part of the values already.
    let frozen = aside
        .clone()
        .filter(|tensor| tensor.role == Role::Frozen && base.is_some());
    let frozen: Vec<TensorSpec> = frozen.cloned().collect();
    let raw = frozen.iter().map(|tensor| match &file {
        Some(file) => file.raw(tensor),
        None => Err(fl_compress::Error::Mismatch(format!(
            "tensor `{}` is missing",
            tensor.name
        ))),
    });
    let raw = raw
        .collect::<Result<Vec<_>, _>>()
        .context("the frozen tensors of the run")?;
    // Loaders of `transformers` refuse a file that names no format.
    let notes = Notes::from([("format".to_owned(), "pt".to_owned())]);
    let plan = FilePlan::new(&layout, &frozen, &notes).context("the model cannot be written as safetensors")?;
    let mut bytes = vec![0; plan.len()];
    plan.write(&values, &raw, &mut bytes)
        .context("the model cannot be written as safetensors")?;
    write::replace(&args.output, &bytes)?;
    let file = args.output.display();
    let run = &parts.run;
    let version = parts.version;
    match &args.average {
        None => out::line(format_args!(
            "{file}: run `{run}`, version {version}, digest {}",
            parts.model
        ))?,
        Some(of) => out::line(format_args!(
            "{file}: run `{run}`, average {of} at version {version}, digest {}",
            Digest::of_f32(&values)
        ))?,
    }
    if !layout.buffers().is_empty() {
        out::line(format_args!(
            "  its running statistics are averages of those after the clients' trainings; measure them again on data of yours, as \
             clients with PyTorch do before they evaluate (torch.optim.swa_utils.update_bn)"
        ))?;
    }
    let local = aside.filter(|tensor| tensor.role == Role::Local);
    let local: Vec<&str> = local.map(|tensor| tensor.name.as_str()).collect();
    if !local.is_empty() {
        out::line(format_args!(
            "  left out, because each client has its own: {}",
            local.join(", ")
        ))?;
    }
    Ok(())
}
