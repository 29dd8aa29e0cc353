//! The `fl-sim` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    fl_server::limit_arenas();
    fl_sim::cli::main(std::env::args_os())
}
