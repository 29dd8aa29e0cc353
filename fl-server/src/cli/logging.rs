//! The log on stderr.

use std::io::IsTerminal as _;

use fl_cli::log::{self, LogFormat};

use crate::coordinator::notifications::ROUNDS;
use crate::telemetry::events::REFUSED;

/// The filter without RUST_LOG. `are_shown`: whether the command prints rounds on the same terminal.
fn default_filter(are_shown: bool) -> String {
    if are_shown {
        format!("info,{ROUNDS}=error,{REFUSED}=error")
    } else {
        "info".to_owned()
    }
}

/// Starts the log. `serves`: the command prints a line for each round on stdout; if stdout and stderr are terminals, the log
/// omits these lines. Does nothing if the process has a log already, as an embedding program may.
pub(super) fn start_logging(format: LogFormat, serves: bool) {
    let are_shown = serves && std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    log::start(format, &default_filter(are_shown));
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::EnvFilter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(are_shown: bool) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(default_filter(are_shown)))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: ROUNDS, round = 1, "round closed");
            tracing::warn!(target: ROUNDS, "camera-01 failed in round 1: no camera");
            tracing::warn!(target: REFUSED, "client turned away");
            tracing::error!(target: ROUNDS, round = 1, "books differ");
            tracing::info!("serving");
        });
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_round_that_is_on_the_terminal_is_not_logged_there_too() {
        let separate = logged(false);
        assert!(
            separate.contains("round closed") && separate.contains("camera-01") && separate.contains("serving"),
            "{separate}"
        );
        let together = logged(true);
        for line in ["round closed", "camera-01", "turned away"] {
            assert!(!together.contains(line), "{together}");
        }
        assert!(
            together.contains("books differ") && together.contains("serving"),
            "{together}"
        );
    }
}
