//! The command line of the server. Each command is one file; this one says what they are called and how they end.

mod check;
mod export;
mod init;
mod issue;
mod issued;
mod out;
mod report;
mod serve;
mod sign;
mod source;
mod status;
mod verify;
mod what_if;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// A server of federated learning: it trains a model with clients that keep their data.
#[derive(Debug, Parser)]
#[command(name = "fl-server", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration, 4 stored data is corrupt, \
                        5 what could be verified is right, but not everything could be."
)]
struct Cli {
    /// How log lines are written to stderr. RUST_LOG chooses which; the default is `info`.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Founds a federation: its authority, the server's certificate, and a commented server.toml.
    Init(init::Args),
    /// Makes the folder that one client needs: its certificate and key, and a commented client.toml.
    Issue(issue::Args),
    /// Serves a run until it is stopped; a run that was begun is continued.
    Serve(serve::Args),
    /// Says where the runs of a federation stand.
    Status(status::Args),
    /// What every round cost: bytes, accuracy and time, beside what fp32 averaging would have sent.
    Report(report::Args),
    /// Says whether a signed report is what a server signed, and where it was changed; or audits a run in its store.
    Verify(verify::Args),
    /// Writes a run's model as safetensors.
    Export(export::Args),
    /// Checks a server.toml or run.toml and says what is wrong with it.
    Check(check::Args),
}

/// Why a command failed, and the exit code that says so.
#[derive(Debug)]
struct Failure {
    code: u8,
    error: anyhow::Error,
}

type Outcome = Result<(), Failure>;

/// Exit code of wrong arguments or configuration.
const USAGE: u8 = 2;
/// Exit code of stored data that cannot be what was stored.
const CORRUPT: u8 = 4;
/// Exit code of `verify` if it found nothing wrong but could not check everything.
const UNCHECKED: u8 = 5;

impl Failure {
    fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: USAGE,
            error: error.into(),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// Corrupt data and plans that cannot be served are told apart by their error, wherever in the chain it stands.
    fn from(error: E) -> Self {
        let error = error.into();
        let code = if error.chain().any(source::is_corruption) {
            CORRUPT
        } else if error.chain().any(source::is_usage) {
            USAGE
        } else {
            1
        };
        Self { code, error }
    }
}

/// Runs the command that `args` (the program's name first) ask for. Results go to stdout, all else to stderr.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and the version are results, and are written as such.
            let printed = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ended(out::judged(printed).map_err(Failure::from))
            };
        }
    };
    start_logging(cli.log_format);
    let outcome = match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Issue(args) => issue::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Check(args) => check::run(&args),
    };
    ended(outcome)
}

/// A text that may hold what somebody typed, without what would move the cursor.
fn shown(text: &str) -> String {
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

fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A closed stderr cannot be helped; the exit code still tells.
            let _ = writeln!(
                std::io::stderr(),
                "fl-server: {}",
                shown(&format!("{:#}", failure.error))
            );
            ExitCode::from(failure.code)
        }
    }
}

/// A second call in one process (an embedding program logs already) changes nothing.
fn start_logging(format: LogFormat) {
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // It would tell of a stderr that is closed with `eprintln!`, which panics then.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
