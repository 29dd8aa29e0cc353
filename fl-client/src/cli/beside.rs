//! Log lines beside a progress bar: the bar makes way while a line is written.

use std::io::{self, Write};

use fl_cli::log;
use indicatif::ProgressBar;

/// Writes to stderr while the bar is hidden.
pub(super) struct Beside(ProgressBar);

impl Beside {
    pub(super) fn new(bar: &ProgressBar) -> Self {
        Self(bar.clone())
    }
}

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The log writes each line at once.
        self.0.suspend(|| io::stderr().write_all(&log::named(bytes)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
