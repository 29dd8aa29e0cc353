//! The command line. Each command is a file; this one reads the arguments and turns the result into an exit code.
//!
//! Exit codes: 0 done, 1 failure, 2 wrong usage or configuration, 3 refused by the server, 5 another task than this client's.

mod check;
mod data;
mod evaluate;
mod init;
mod log;
mod out;
mod run;
mod show;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::error::Error;

/// Takes part in federated training: trains where the data is and sends only what matters.
#[derive(Debug, Parser)]
#[command(name = "fl-client", version, after_help = EXIT_CODES)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// How the log on stderr is written. What is logged: RUST_LOG, for example RUST_LOG=debug.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failure, 2 wrong usage or configuration, 3 refused by the server \
                          (certificate or permission), 5 the server runs a task that this client has no learner \
                          for (with --exit-when-done; otherwise the client waits for another run).";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Init(init::Args),
    Evaluate(evaluate::Args),
    Check(check::Args),
    Data(data::Args),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs the program with `args`, the first of which is its name. Public so that another program can contain this one.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Help and version are results; what is wrong otherwise is on stderr.
            if !error.use_stderr() {
                return ended(out::judged(error.print()));
            }
            let _ = write!(std::io::stderr(), "{}", misused(&error));
            return ExitCode::from(2);
        }
    };
    let bar = indicatif::ProgressBar::hidden();
    // The log of a run is what its operator reads; the other commands print a result.
    let filter = match args.command {
        Command::Run(_) => "warn,fl_client=info",
        _ => "warn",
    };
    log::start(args.log_format, filter, &bar);
    let done = match args.command {
        Command::Run(args) => run::run(args, &bar),
        Command::Init(args) => init::run(&args),
        Command::Evaluate(args) => evaluate::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Data(args) => data::run(&args, &bar),
    };
    bar.finish_and_clear();
    ended(done)
}

/// What is wrong with the arguments, with the prefix that every error has.
fn misused(error: &clap::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("error: ") {
        Some(why) => format!("fl-client: {why}"),
        None => text,
    }
}

fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr cannot be helped; the exit code still tells.
            let text = format!("{error:#}");
            // Where the system wants backtraces, candle puts one into its message.
            let text = text.split("\n   0: ").next().unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "fl-client: {text}");
            code(&error)
        }
    }
}

fn code(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Error>() {
        Some(Error::Config(_)) => ExitCode::from(2),
        Some(Error::Refused(_)) => ExitCode::from(3),
        Some(Error::OtherTask(_)) => ExitCode::from(5),
        _ => match error.downcast_ref::<crate::data::Error>() {
            Some(error) if error.is_input() => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        },
    }
}
