//! The `fl-client` program; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = fl_cli::first::as_first_process() {
        return code;
    }
    fl_client::cli::main(std::env::args_os())
}
