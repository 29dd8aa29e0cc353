//! The program `fl-client`; everything is in the libraries.

use std::process::ExitCode;

#[cfg(feature = "learn")]
fn main() -> ExitCode {
    fl_learn::main(fl_learn::Registry::built_in())
}

/// For trainers alone.
#[cfg(not(feature = "learn"))]
fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = fl_cli::first::as_first_process() {
        return code;
    }
    fl_client::cli::main(std::env::args_os())
}
