//! `fl-compress`: the codecs as a command-line tool for safetensors files.
//!
//! Exit codes: 0 success, 1 an output could not be written, 2 invalid arguments or spec, 3 an input is missing or of
//! the wrong kind, 4 corrupt payload. An error is one line on stderr that names the file, and the tensor and the offset
//! if they are known.

mod apply;
mod bench;
mod compare;
mod decode;
mod diff;
mod encode;
mod failure;
mod fidelity;
mod inspect;
mod limit;
mod progress;
mod read;
mod spec;
mod state;
mod table;
mod words;
mod write;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use failure::Failure;

/// Compress model updates, inspect archives, and compare codecs.
///
/// A spec file (TOML) has the keys of `[compression.uplink]` of a run. A `.flz` file is self-contained.
#[derive(Debug, Parser)]
#[command(name = "fl-compress", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  an output could not be written
  2  invalid arguments or spec
  3  an input is missing or of the wrong kind
  4  corrupt payload";

#[derive(Debug, Subcommand)]
enum Command {
    Encode(encode::Args),
    Decode(decode::Args),
    Diff(diff::Args),
    Apply(apply::Args),
    Inspect(inspect::Args),
    Compare(compare::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(asked) => return answer(&asked),
    };
    let done = match command {
        Command::Encode(args) => encode::run(&args),
        Command::Decode(args) => decode::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> ExitCode {
    // A closed stderr must not cause a panic.
    let _ = writeln!(std::io::stderr(), "fl-compress: {failure}");
    ExitCode::from(failure.code())
}

/// Prints help and version; reports invalid arguments on one line.
fn answer(asked: &clap::Error) -> ExitCode {
    if !asked.use_stderr() || asked.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = asked.print();
        return ExitCode::from(asked.exit_code() as u8);
    }
    let text = asked.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let ends = ["Usage:", "For more information"]
        .iter()
        .filter_map(|end| text.find(end));
    let why = text[..ends.min().unwrap_or(text.len())].trim_end();
    failed(&Failure::Usage(format!("{why} (see --help)")))
}
