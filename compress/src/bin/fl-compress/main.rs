//! `fl-compress`: the codecs of a federation for people and scripts, on safetensors files.
//!
//! Exit codes: 0 done, 1 an output could not be written, 2 usage or spec, 3 an input is not what it should be, 4 corrupt
//! payload. An error is one line on stderr that names the file, and tensor and offset where there is one.

mod apply;
mod bench;
mod compare;
mod decode;
mod diff;
mod encode;
mod failure;
mod inspect;
mod progress;
mod read;
mod spec;
mod state;
mod svg;
mod table;
mod words;
mod write;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Compress model updates, look into what was compressed, and compare codecs.
///
/// A spec file (TOML) holds what stands under `[compression.uplink]` of a run. A `.flz` file decodes alone.
#[derive(Debug, Parser)]
#[command(name = "fl-compress", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  an output could not be written
  2  usage or spec
  3  an input cannot be read as what it should be
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
    let done = match Cli::parse().command {
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
        Err(failure) => {
            eprintln!("fl-compress: {failure}");
            ExitCode::from(failure.code())
        }
    }
}
