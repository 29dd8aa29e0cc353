//! The command line of the server. Each command is one file; this one says what they are called and how they end.

mod change;
mod check;
mod exclude;
mod export;
mod init;
mod issue;
mod issued;
mod new;
mod out;
mod report;
mod rollback;
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

use crate::coordinator::notifications::ROUNDS;

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
    /// Writes a commented run.toml.
    New(new::Args),
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
    /// Takes the model of a run back to an older version.
    Rollback(rollback::Args),
    /// Excludes a client from the open round: its update is not counted.
    Exclude(exclude::Args),
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
            if !error.use_stderr() {
                return ended(out::judged(error.print()).map_err(Failure::from));
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

/// What is wrong with the arguments, with the prefix that every error has.
fn misused(error: &clap::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("error: ") {
        Some(why) => format!("fl-server: {why}"),
        None => text,
    }
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

/// What is logged unless RUST_LOG says otherwise. `are_shown`: whether rounds appear on the same terminal anyway.
fn default_filter(are_shown: bool) -> String {
    match are_shown {
        true => format!("info,{ROUNDS}=warn"),
        false => "info".to_owned(),
    }
}

/// Starts the log on stderr. `serves`: the command prints a line a round on stdout; if both are terminals, the log does not
/// repeat it. A second call in one process (an embedding program logs already) changes nothing.
fn start_logging(format: LogFormat, serves: bool) {
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;
    let are_shown = serves && std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default_filter(are_shown)));
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::EnvFilter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(are_shown: bool) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(default_filter(are_shown)))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: ROUNDS, round = 1, "round closed");
            tracing::error!(target: ROUNDS, round = 1, "books differ");
            tracing::info!("serving");
        });
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_round_that_is_on_the_terminal_is_not_logged_there_too() {
        let apart = logged(false);
        assert!(apart.contains("round closed") && apart.contains("serving"), "{apart}");
        let together = logged(true);
        assert!(!together.contains("round closed"), "{together}");
        assert!(
            together.contains("books differ") && together.contains("serving"),
            "{together}"
        );
    }

    #[test]
    fn wrong_arguments_have_the_prefix_of_every_error() {
        let said = |args: &[&str]| misused(&Cli::try_parse_from(args).unwrap_err());
        assert!(said(&["fl-server", "serve", "--rum"]).starts_with("fl-server: unexpected argument '--rum'"));
        assert!(said(&["fl-server", "zip"]).starts_with("fl-server: unrecognized subcommand"));
    }
}
