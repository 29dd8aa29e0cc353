//! `fl-server rollback FED [RUN] --to R`: takes the model back to an older version.

use std::path::PathBuf;

use crate::cli::change;
use crate::cli::failure::Outcome;
use crate::coordinator::change::Change;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml. The server may be running or stopped.
    fed: PathBuf,
    /// The run; not needed if there is only one.
    run: Option<String>,
    /// The version to return to, 0 to one less than the newest. It becomes the newest version under the next number,
    /// and the rounds after it are trained again.
    #[arg(long)]
    to: u64,
}

pub(super) fn run(args: &Args) -> Outcome {
    change::ask(&args.fed, args.run.as_deref(), Change::RollBack { to: args.to })
}
