//! Models and data for the client of `fl-client`, on candle: learners, the operations that they are made of, data sets, and the
//! [`Registry`] that finds learners and data sets by name. The program `fl-client` is this crate's.

#[cfg(feature = "learn")]
mod cli;
#[cfg(feature = "learn")]
pub mod data;
#[cfg(feature = "learn")]
mod described;
#[cfg(feature = "learn")]
pub mod learners;
#[cfg(feature = "learn")]
pub mod ops;
#[cfg(feature = "learn")]
mod registry;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(feature = "learn")]
pub use registry::{Registry, Task};

/// Runs the program `fl-client`; the first of `args` is its name. Public so that another program can contain this one.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    #[cfg(feature = "learn")]
    return cli::main(args, Registry::built_in());
    #[cfg(not(feature = "learn"))]
    fl_client::cli::main(args)
}
