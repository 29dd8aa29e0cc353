//! `fl-server export FED [RUN] -o FILE`: a model as safetensors, its digest checked.

use crate::model::stored_frames::assemble;
use std::path::PathBuf;

use anyhow::Context;
use fl_cli::out;
use fl_compress::weights::to_safetensors;

use crate::admin::socket::{Answer, Ask};
use crate::cli::failure::Outcome;
use crate::cli::{source, write};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    fed: PathBuf,
    /// The run; not needed if there is only one.
    run: Option<String>,
    /// Model version: the number of rounds behind it. The newest if not given.
    #[arg(long)]
    version: Option<u64>,
    /// File to write; replaced as a whole.
    #[arg(short, long)]
    output: PathBuf,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (_, config) = source::federation(&args.fed)?;
    let ask = Ask::Model {
        run: args.run.clone(),
        version: args.version,
    };
    let Answer::Model(parts) = source::ask(&config, &ask)? else {
        return Err(source::unexpected().into());
    };
    let (layout, model) = assemble(&config.data, &parts)?;
    let bytes = to_safetensors(&layout, &model).context("the model cannot be written as safetensors")?;
    write::replace(&args.output, &bytes)?;
    out::line(format_args!(
        "{}: run `{}`, version {}, digest {}",
        args.output.display(),
        parts.run,
        parts.version,
        parts.model
    ))?;
    Ok(())
}
