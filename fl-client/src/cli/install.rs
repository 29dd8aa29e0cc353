//! `fl-client install FILE`: takes the certificate that `fl-server sign` made.

use std::path::PathBuf;

use fl_cli::out;

use super::enroll::{TaskArgs, client_toml, preflight};
use crate::config::check_address;
use crate::enrollment::ClientFolder;
use crate::error::Error;
use crate::named::Learners;

/// Take the certificate that `fl-server sign` made for this device's request, and write client.toml.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file that `fl-server sign` wrote.
    signed: PathBuf,
    /// `host:port` of the server.
    #[arg(long)]
    server: String,
    /// The folder of `fl-client request`.
    #[arg(long, default_value = ".")]
    to: PathBuf,
    #[command(flatten)]
    task: TaskArgs,
}

pub(super) fn run(args: &Args, learners: &dyn Learners) -> anyhow::Result<()> {
    check_address(&args.server).map_err(Error::Config)?;
    let task = args.task.table(learners)?;
    let folder = ClientFolder::new(&args.to, None, false);
    let done = folder.install(&args.signed, &client_toml(&args.server, task.as_deref()))?;
    out::line(format_args!(
        "installed `{}` until {}, in {}",
        done.name,
        done.expires.date(),
        args.to.display()
    ))?;
    preflight(&folder.config(), learners, false)
}
