//! `fl-client data`: public data sets, downloaded and checked.

#[cfg(feature = "download")]
mod get;
#[cfg(not(feature = "download"))]
#[path = "no_get.rs"]
mod get;

use std::path::PathBuf;

use indicatif::ProgressBar;

/// Download public data sets.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Download a set, check it and unpack what the reader wants; files that are there and right stay.
    Get {
        /// The set: fashion-mnist, mnist, cifar-10.
        name: String,
        /// Folder for its files.
        #[arg(long)]
        to: PathBuf,
    },
}

pub(super) fn run(args: &Args, bar: &ProgressBar) -> anyhow::Result<()> {
    let Command::Get { name, to } = &args.command;
    get::run(name, to, bar)
}
