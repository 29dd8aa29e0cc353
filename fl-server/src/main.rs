//! The `fl-server` program; everything it does is in the library, so that other programs can embed it.

use std::process::ExitCode;

fn main() -> ExitCode {
    fl_server::settle_allocator();
    fl_server::cli::main(std::env::args_os())
}
