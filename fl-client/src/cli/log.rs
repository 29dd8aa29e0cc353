//! The log on stderr, which makes way for a progress bar.

use std::io::{self, IsTerminal, Write};

use indicatif::ProgressBar;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::LogFormat;

/// Starts logging what passes `filter`, unless RUST_LOG says what to log. A program that contains this one and logs already
/// keeps its own log.
pub(super) fn start(format: LogFormat, filter: &str, bar: &ProgressBar) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        // It would tell of a stderr that is closed with `eprintln!`, which panics then.
        .log_internal_errors(false)
        .with_writer(Beside(bar.clone()));
    // The error says that a log is installed already.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Writes to stderr while the bar is out of the way.
#[derive(Clone)]
struct Beside(ProgressBar);

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Beside {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
