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
mod ops;
#[cfg(feature = "learn")]
mod registry;

#[cfg(feature = "learn")]
use std::ffi::OsString;
#[cfg(feature = "learn")]
use std::process::ExitCode;

#[cfg(feature = "learn")]
pub use candle_core::{self as candle, Result, Tensor};
#[cfg(feature = "learn")]
pub use candle_nn as nn;
#[cfg(feature = "learn")]
pub use learners::{Dropout, max_pool2d};
#[cfg(feature = "learn")]
pub use registry::{Registry, Task};

/// Runs the program `fl-client` with the learners and data sets of `registry`, beside trainers. Call it first in `main`, with its
/// return value.
#[cfg(feature = "learn")]
pub fn main(registry: Registry) -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = fl_cli::first::as_first_process() {
        return code;
    }
    run(std::env::args_os(), registry)
}

/// As [`main`], inside another program; the first of `args` is the program's name.
#[cfg(feature = "learn")]
pub fn run(args: impl IntoIterator<Item = OsString>, registry: Registry) -> ExitCode {
    cli::main(args, registry)
}

/// The code of the guide.
#[cfg(all(doctest, feature = "learn"))]
#[doc = include_str!("../../docs/guide/candle-nn.md")]
pub struct Guide;
