//! The log on stderr. A thread of its own writes it: whoever reads the log and stalls must not stop a round.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that wait to be written; those beyond are dropped and counted. About a megabyte.
const WAITING: usize = 4096;

static WRITES: Mutex<Option<WorkerGuard>> = Mutex::new(None);

static CLIENT: OnceLock<String> = OnceLock::new();

/// From now on, [`named`] adds the name of the client that this process is: several may write to one terminal or file.
pub fn name_client(name: &str) {
    let _ = CLIENT.set(name.to_owned());
}

/// A line of the log with the client's name: before the text, or as the key `client` of a JSON object.
pub fn named(line: &[u8]) -> Vec<u8> {
    match (CLIENT.get(), line) {
        (None, _) => line.to_vec(),
        // Names of clients need no escapes.
        (Some(name), [b'{', rest @ ..]) => [format!("{{\"client\":\"{name}\",").as_bytes(), rest].concat(),
        (Some(name), _) => [format!("{name} ").as_bytes(), line].concat(),
    }
}

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
    start_with(format, filter, io::stderr());
}

/// As [`start`], but lines go through `writer`, which writes to stderr.
pub fn start_with(format: LogFormat, filter: &str, writer: impl Write + Send + 'static) {
    let dropped = Arc::new(OnceLock::new());
    let told = Told {
        writer,
        dropped: Arc::clone(&dropped),
        told: 0,
    };
    let queue = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING);
    let (queue, guard) = queue.thread_name("log").finish(told);
    let _ = dropped.set(queue.error_counter());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        // It would report a closed stderr with `eprintln!`, which panics then.
        .log_internal_errors(false)
        .with_writer(queue);
    // An error says that a log was started already.
    let started = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if started.is_ok() {
        *WRITES.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
    }
}

/// Waits until all lines are written, for at most a second, at the end of the process.
pub fn finish() {
    drop(WRITES.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Says how many lines were dropped before the next one that is written.
struct Told<W> {
    writer: W,
    dropped: Arc<OnceLock<ErrorCounter>>,
    told: usize,
}

impl<W: Write> Write for Told<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let dropped = self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        if dropped > self.told {
            let more = dropped - std::mem::replace(&mut self.told, dropped);
            let said = match line {
                [b'{', ..] => format!("{{\"level\":\"WARN\",\"dropped_lines\":{more}}}\n"),
                _ => format!("{more} lines of this log were dropped: nobody read it\n"),
            };
            self.writer.write_all(said.as_bytes())?;
        }
        self.writer.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Rounds to four digits after the point, for the log.
pub fn four_digits(number: f64) -> f64 {
    let rounded = (number * 1e4).round() / 1e4;
    // A number too large to have such digits stays unchanged.
    if rounded.is_finite() { rounded } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_name_of_the_client_once_it_is_known() {
        assert_eq!(named(b"a line"), b"a line");
        name_client("anna");
        assert_eq!(named(b"a line"), b"anna a line");
        assert_eq!(named(b"{\"level\":1}"), b"{\"client\":\"anna\",\"level\":1}");
    }

    #[test]
    fn lines_that_were_dropped_are_counted_in_the_next_one() {
        let (reads, writes) = std::sync::mpsc::sync_channel::<Vec<u8>>(0);
        // Blocks until somebody reads.
        struct Full(std::sync::mpsc::SyncSender<Vec<u8>>);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let dropped = Arc::new(OnceLock::new());
        let told = Told {
            writer: Full(reads),
            dropped: Arc::clone(&dropped),
            told: 0,
        };
        let queue = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(4);
        let (mut queue, guard) = queue.finish(told);
        let _ = dropped.set(queue.error_counter());
        for at in 0..100 {
            queue.write_all(format!("line {at}\n").as_bytes()).unwrap();
        }
        let lost = queue.error_counter().dropped_lines();
        assert!((90..100).contains(&lost), "{lost}");
        let (mut lines, mut counted) = (0, 0);
        while lines < 100 - lost {
            let line = String::from_utf8(writes.recv().unwrap()).unwrap();
            match line.strip_suffix(" lines of this log were dropped: nobody read it\n") {
                Some(count) => counted += count.parse::<usize>().unwrap(),
                None => lines += 1,
            }
        }
        assert_eq!(counted, lost);
        drop(writes);
        drop(guard);
    }

    #[test]
    fn numbers_in_the_log_have_four_digits() {
        let shown = [2.345_678_9, 0.25, 1e-9, -0.123_456, f64::MAX].map(|x| four_digits(x).to_string());
        assert_eq!(shown[..4], ["2.3457", "0.25", "0", "-0.1235"]);
        assert_eq!(shown[4], f64::MAX.to_string());
        assert!(four_digits(f64::NAN).is_nan());
    }
}
