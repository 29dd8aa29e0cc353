//! The `fl-client` program; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    fl_client::cli::main(std::env::args_os())
}
