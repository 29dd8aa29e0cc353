//! `fl-server exclude FED CLIENT`: takes a client out of the open round.

use std::path::PathBuf;

use crate::cli::change;
use crate::cli::failure::Outcome;
use crate::coordinator::change::Change;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml. The server may be running or stopped.
    fed: PathBuf,
    /// The client. It may take part in later rounds; to refuse it for good, add its name to `revoked`.
    client: String,
    /// The run; not needed if there is only one.
    #[arg(long)]
    run: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let client = args.client.clone();
    change::ask(&args.fed, args.run.as_deref(), Change::Exclude { client })
}
