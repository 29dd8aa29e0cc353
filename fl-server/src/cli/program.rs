//! The program `fl-server`: its arguments and subcommands.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::failure::{Failure, Outcome, USAGE};
use crate::cli::logging::{LogFormat, start_logging};
use crate::cli::{check, exclude, export, init, issue, new, out, report, rollback, serve, status, verify};

/// A federated learning server: trains a model with clients whose data stays with them.
#[derive(Debug, Parser)]
#[command(name = "fl-server", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration, 4 stored data is corrupt, \
                        5 verified without an error, but not completely."
)]
struct Cli {
    /// Format of the log on stderr. RUST_LOG sets the level; the default is `info`.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates a federation: its authority, the server's certificate, and a commented server.toml.
    Init(init::Args),
    /// Creates the folder of a client: its certificate and key, and a commented client.toml.
    Issue(issue::Args),
    /// Writes a commented run.toml.
    New(new::Args),
    /// Serves a run until it is stopped; continues a run that has begun.
    Serve(serve::Args),
    /// Shows the state of the runs of a federation.
    Status(status::Args),
    /// Shows the cost of every round: bytes, accuracy and time, compared with fp32 averaging.
    Report(report::Args),
    /// Verifies a signed report, or audits a run in its store.
    Verify(verify::Args),
    /// Writes a run's model as safetensors.
    Export(export::Args),
    /// Rolls the model of a run back to an older version.
    Rollback(rollback::Args),
    /// Excludes a client from the open round: its update does not count.
    Exclude(exclude::Args),
    /// Checks a server.toml or run.toml.
    Check(check::Args),
}

/// Runs the subcommand in `args`, which begin with the program's name. Results go to stdout, all else to stderr.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and the version are results and go to stdout.
            if !error.use_stderr() {
                let printed = out::unless_closed(error.print()).map_err(Failure::from);
                return exit_code(printed);
            }
            let _ = write!(std::io::stderr(), "{}", misused(&error));
            return ExitCode::from(USAGE);
        }
    };
    start_logging(cli.log_format, matches!(cli.command, Command::Serve(_)));
    let outcome = match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Issue(args) => issue::run(&args),
        Command::New(args) => new::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Rollback(args) => rollback::run(&args),
        Command::Exclude(args) => exclude::run(&args),
        Command::Check(args) => check::run(&args),
    };
    exit_code(outcome)
}

/// The text of an error in the arguments, with the prefix of all errors.
fn misused(error: &clap::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("error: ") {
        Some(why) => format!("fl-server: {why}"),
        None => text,
    }
}

fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If stderr is closed, the exit code is all that is left.
            let _ = writeln!(
                std::io::stderr(),
                "fl-server: {}",
                printable(&format!("{:#}", failure.error()))
            );
            ExitCode::from(failure.code())
        }
    }
}

/// `text` without control characters, which could move the cursor: it may quote input.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_have_the_prefix_of_every_error() {
        let said = |args: &[&str]| misused(&Cli::try_parse_from(args).unwrap_err());
        assert!(said(&["fl-server", "serve", "--rum"]).starts_with("fl-server: unexpected argument '--rum'"));
        assert!(said(&["fl-server", "zip"]).starts_with("fl-server: unrecognized subcommand"));
    }
}
