//! The log on stderr.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log on stderr. `filter` applies unless RUST_LOG is set. A program that embeds this one and has started its own
/// log keeps that log.
pub fn start(format: LogFormat, filter: &str) {
    start_with(format, filter, io::stderr);
}

/// As [`start`], but lines go through `writer`, which writes to stderr.
pub fn start_with<W>(format: LogFormat, filter: &str, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        // It would report a closed stderr with `eprintln!`, which panics then.
        .log_internal_errors(false)
        .with_writer(writer);
    // An error says that a log was started already.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
