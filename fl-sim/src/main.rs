//! The `fl-sim` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    fl_sim::cli::main(std::env::args_os())
}
