//! The command line: that of `fl-client`, and the commands of its own learners and data sets.

mod data;
mod export;
mod generate;
mod task;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use fl_client::Learners;

use crate::data::told;
use crate::registry::Registry;

#[derive(Debug, clap::Subcommand)]
enum Command {
    Generate(generate::Args),
    Export(export::Args),
    Data(data::Args),
}

/// Runs the program with the learners and data sets of `registry`. `args`: its name first.
pub(crate) fn main(args: impl IntoIterator<Item = OsString>, registry: Registry) -> ExitCode {
    let registry = Arc::new(registry);
    let learners: Arc<dyn Learners> = registry.clone();
    fl_client::cli::main_with(args, &learners, |command, bar| {
        let done = match command {
            Command::Generate(args) => generate::run(&args, &registry),
            Command::Export(args) => export::run(&args, &registry),
            Command::Data(args) => data::run(&args, bar),
        };
        done.map_err(told)
    })
}
