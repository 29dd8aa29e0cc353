//! A progress line on stderr for work of more than two seconds, if stderr is a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

// Shorter work needs no line; the time is then shown twice a second.
const QUIET: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(500);

/// Work in progress. Dropping it clears the line.
#[derive(Debug)]
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

/// Starts the timer of `what`.
pub(crate) fn start(what: impl Into<String>) -> Progress {
    if !std::io::stderr().is_terminal() {
        return Progress(None);
    }
    let what = what.into();
    let began = Instant::now();
    let (stop, stopped) = channel();
    let ticker = std::thread::spawn(move || {
        let mut wait = QUIET;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            wait = STEP;
            let _ = write!(std::io::stderr(), "\r\x1b[K{what} {} s", began.elapsed().as_secs());
        }
        if wait == STEP {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    });
    Progress(Some((stop, ticker)))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, ticker)) = self.0.take() {
            drop(stop);
            let _ = ticker.join();
        }
    }
}
