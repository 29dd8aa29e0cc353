//! The program `fl-server`: its arguments and subcommands.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fl_cli::log::LogFormat;
use fl_cli::{args, exit};

use crate::cli::logging::start_logging;
use crate::cli::{
    authority, check, clients, enroll, exclude, export, health, init, issue, new, report, rollback, serve,
    sign_request, status, tokens, verify,
};

const NAME: &str = "fl-server";

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
    /// Prints a line that enrolls a device: the device makes its own key.
    Enroll(enroll::Args),
    /// Lists or revokes enrollment tokens.
    Tokens(tokens::Args),
    /// Lists, revokes, restores, tags, forgets or approves clients.
    Clients(clients::Args),
    /// Signs a device's request where the authority's key is; for devices and servers without a network between them.
    Sign(sign_request::Args),
    /// Rotates the federation's authority, in two steps between which both are trusted.
    Authority(authority::Args),
    /// Creates the folder of a client: its certificate and key, and a commented client.toml.
    Issue(issue::Args),
    /// Writes a commented run.toml.
    New(new::Args),
    /// Serves a run until it is stopped; continues a run that has begun.
    Serve(serve::Args),
    /// Asks whether the server works, for probes: exit code 0 if it answers, 1 if not.
    Health(health::Args),
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
    let cli: Cli = match args::parse(NAME, args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    start_logging(cli.log_format, matches!(cli.command, Command::Serve(_)));
    let outcome = match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Enroll(args) => enroll::run(&args),
        Command::Tokens(args) => tokens::run(&args),
        Command::Clients(args) => clients::run(&args),
        Command::Sign(args) => sign_request::run(&args),
        Command::Authority(args) => authority::run(&args),
        Command::Issue(args) => issue::run(&args),
        Command::New(args) => new::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Rollback(args) => rollback::run(&args),
        Command::Exclude(args) => exclude::run(&args),
        Command::Check(args) => check::run(&args),
    };
    match outcome {
        Ok(()) => exit::done(),
        Err(failure) => exit::failed(NAME, exit::chain(failure.error()), failure.code()),
    }
}
