//! The `fl-sim` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Server and clients of a whole federation run in this process or in a child process.
    fl_proto::raise_open_files();
    fl_sim::cli::main(std::env::args_os())
}
