//! What the command lines of `fl-server`, `fl-client` and `fl-sim` share.
//!
//! Results go to stdout, everything else to stderr. A closed stdout or stderr never panics and never fails a command.

pub mod args;
pub mod exit;
pub mod findings;
#[cfg(target_os = "linux")]
pub mod first;
pub mod folder;
pub mod log;
pub mod out;
pub mod printable;
pub mod service;
pub mod signal;
pub mod task;

/// How a command writes its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}
