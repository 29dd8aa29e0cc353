//! The program `fl-client`; everything is in the libraries.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = fl_cli::first::as_first_process() {
        return code;
    }
    fl_learn::run(std::env::args_os())
}
