//! The command line. Each command is a file; this one reads the arguments and turns the result into an exit code.
//!
//! Exit codes: 0 done, 1 failure, 2 wrong usage or configuration, 3 refused by the server, 5 another task than this client's.

mod beside;
mod check;
mod enroll;
mod evaluate;
mod health;
mod init;
mod install;
mod pulse;
mod request;
mod run;
mod show;

use std::convert::Infallible;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser, Subcommand};
use fl_cli::log::LogFormat;
use fl_cli::{args, exit, log};

use crate::error::Error;
use crate::named::{Learners, TrainersOnly};
use beside::Beside;

/// Takes part in federated training: trains where the data is and sends only what matters.
#[derive(Debug, Parser)]
#[command(name = "fl-client", version, after_help = EXIT_CODES)]
struct Args<E: Subcommand> {
    #[command(subcommand)]
    command: Command<E>,
    /// How the log on stderr is written. What is logged: RUST_LOG, for example RUST_LOG=debug.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

const NAME: &str = "fl-client";

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failure, 2 wrong usage or configuration, 3 refused by the server \
                          (certificate or permission), 5 the server runs a task that this client has no learner \
                          for (with --exit-when-done; otherwise the client waits for another run).";

#[derive(Debug, Subcommand)]
enum Command<E: Subcommand> {
    Enroll(enroll::Args),
    Request(request::Args),
    Install(install::Args),
    Run(run::Args),
    Health(health::Args),
    Init(init::Args),
    Evaluate(evaluate::Args),
    Check(check::Args),
    #[command(flatten)]
    Further(E),
}

/// What a running client logs: also what its learners say, of the crate that has them.
const RUN_LOG: &str = "warn,fl_cli=info,fl_client=info,fl_learn=info";

/// Runs the program without learners, for trainers alone. `args`: its name first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let learners: Arc<dyn Learners> = Arc::new(TrainersOnly);
    main_with(args, &learners, |never: Infallible, _| match never {})
}

/// Runs the program with these learners, and with further commands, which `further` does. `args`: its name first.
pub fn main_with<E: Subcommand>(
    args: impl IntoIterator<Item = OsString>,
    learners: &Arc<dyn Learners>,
    further: impl FnOnce(E, &indicatif::ProgressBar) -> anyhow::Result<()>,
) -> ExitCode {
    let help = learners.help();
    let named = |command: clap::Command| command.mut_arg("learner", |arg| arg.help(help.clone()));
    let command = Args::<E>::command();
    let command = command.mut_subcommand("init", named).mut_subcommand("evaluate", named);
    let args: Args<E> = match args::parse_as(NAME, command, args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let bar = indicatif::ProgressBar::hidden();
    // The log of a run is what its operator reads; the other commands print a result.
    let filter = match args.command {
        Command::Run(_) => RUN_LOG,
        Command::Enroll(ref args) if args.runs() => RUN_LOG,
        Command::Check(ref args) if args.prints_output() => "warn,fl_client::trainer=info",
        // They say where a trainer is to attach.
        Command::Init(_) | Command::Evaluate(_) => "warn,fl_client::trainer=info",
        _ => "warn",
    };
    log::start_with(args.log_format, filter, Beside::new(&bar));
    let done = match args.command {
        Command::Enroll(args) => enroll::run(&args, learners, &bar),
        Command::Request(args) => request::run(&args),
        Command::Install(args) => install::run(&args, learners.as_ref()),
        Command::Run(args) => run::run(args, learners, &bar),
        Command::Health(args) => health::run(args, learners.as_ref()),
        Command::Init(args) => init::run(&args, learners.as_ref()),
        Command::Evaluate(args) => evaluate::run(&args, learners.as_ref()),
        Command::Check(args) => check::run(&args, learners.as_ref()),
        Command::Further(command) => further(command, &bar),
    };
    bar.finish_and_clear();
    match done {
        Ok(()) => exit::done(),
        Err(error) => exit::failed(NAME, text_of(&error), code(&error)),
    }
}

fn text_of(error: &anyhow::Error) -> String {
    let text = exit::chain(error);
    text.split("\n   0: ").next().unwrap_or_default().to_owned()
}

fn code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>() {
        Some(Error::Config(_)) => exit::USAGE,
        Some(Error::Refused(_) | Error::Unverified(_)) => 3,
        Some(Error::OtherTask(_)) => 5,
        _ => exit::FAILURE,
    }
}
