//! The log on stderr. A thread of its own writes it: whoever reads the log and stalls must not stop a round. Whatever a peer can
//! cause in any number, the log has few lines of each kind.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::printable::is_wild;

/// Lines that wait to be written; those beyond are dropped and counted. About a megabyte.
const WAITING: usize = 4096;
/// Lines of one kind within [`WINDOW`], at most; those beyond are counted. A line of the program's text is a kind.
const FAILURES: u32 = 60;
/// The same for lines that say nothing bad: a thousand clients may connect at once.
const NEWS: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(60);

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
    let spared = Arc::default();
    let told = LossReport {
        writer,
        dropped: Arc::clone(&dropped),
        spared: Arc::clone(&spared),
        told: (0, 0),
        has_colors: io::stderr().is_terminal(),
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
    let sparing = Sparing {
        kinds: Mutex::default(),
        spared,
    };
    // An error says that a log was started already.
    let started = match format {
        LogFormat::Text => builder.with_target(false).finish().with(sparing).try_init(),
        LogFormat::Json => builder.json().finish().with(sparing).try_init(),
    };
    if started.is_ok() {
        *WRITES.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
    }
}

/// Waits until all lines are written, for at most a second, at the end of the process.
pub fn finish() {
    drop(WRITES.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Bounds the lines of each kind.
struct Sparing {
    /// Since when lines are counted, and how many there were.
    kinds: Mutex<HashMap<Identifier, (Instant, u32)>>,
    /// Lines that were left out.
    spared: Arc<AtomicUsize>,
}

impl Sparing {
    /// Whether one more line of this kind is written.
    fn allows(&self, kind: Identifier, level: Level, now: Instant) -> bool {
        let most = match level {
            Level::ERROR | Level::WARN => FAILURES,
            Level::INFO => NEWS,
            _ => return true,
        };
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, lines) = kinds.entry(kind).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= WINDOW {
            (*since, *lines) = (now, 0);
        }
        *lines += 1;
        if *lines > most {
            self.spared.fetch_add(1, Ordering::Relaxed);
        }
        *lines <= most
    }
}

impl<S: Subscriber> Layer<S> for Sparing {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let about = event.metadata();
        self.allows(about.callsite(), *about.level(), Instant::now())
    }
}

/// Says how many lines were dropped or left out before the next one that is written.
struct LossReport<W> {
    writer: W,
    dropped: Arc<OnceLock<ErrorCounter>>,
    spared: Arc<AtomicUsize>,
    told: (usize, usize),
    has_colors: bool,
}

impl<W: Write> Write for LossReport<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let dropped = self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        let spared = self.spared.load(Ordering::Relaxed);
        let kinds = [
            (&mut self.told.0, dropped, "dropped_lines", "dropped: nobody read it"),
            (
                &mut self.told.1,
                spared,
                "spared_lines",
                "left out: too many of one kind in a minute",
            ),
        ];
        for (told, count, key, why) in kinds {
            let more = count - std::mem::replace(told, count);
            if more > 0 {
                let said = match line {
                    [b'{', ..] => format!("{{\"level\":\"WARN\",\"{key}\":{more}}}\n"),
                    _ => format!("{more} lines of this log were {why}\n"),
                };
                self.writer.write_all(said.as_bytes())?;
            }
        }
        match std::str::from_utf8(line) {
            // Colors are the log's own. What it quotes was made plain where it came in; this is for what was forgotten there.
            Ok(text) if !self.has_colors && text.contains(is_wild) => {
                let plain = text.replace(is_wild, "\u{fffd}");
                self.writer.write_all(plain.as_bytes())?;
            }
            _ => self.writer.write_all(line)?,
        }
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
        let told = LossReport {
            writer: Full(reads),
            dropped: Arc::clone(&dropped),
            spared: Arc::default(),
            told: (0, 0),
            has_colors: false,
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
    fn of_a_flood_the_log_has_few_lines_of_each_kind_and_says_how_many_are_missing() {
        /// What the log's thread would write.
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (lines, spared) = (Lines::default(), Arc::<AtomicUsize>::default());
        let (writer, counted) = (lines.clone(), Arc::clone(&spared));
        let told = Mutex::new(LossReport {
            writer,
            dropped: Arc::default(),
            spared: counted,
            told: (0, 0),
            has_colors: false,
        });
        let sparing = Sparing {
            kinds: Mutex::default(),
            spared,
        };
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(told)
            .finish()
            .with(sparing);
        tracing::subscriber::with_default(log, || {
            for at in 0..10_000 {
                tracing::warn!(at, "a peer sends nonsense");
                tracing::info!(at, "a peer comes");
            }
            tracing::warn!("the disk is full\u{202e}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let of = |kind: &str| text.lines().filter(|line| line.contains(kind)).count() as u32;
        assert_eq!(
            (of("nonsense"), of("a peer comes"), of("the disk is full")),
            (FAILURES, NEWS, 1)
        );
        let missing = text
            .lines()
            .filter(|line| line.contains("lines of this log were left out"));
        let missing: usize = missing
            .map(|line| line.split(' ').next().unwrap().parse::<usize>().unwrap())
            .sum();
        assert_eq!(missing as u32, 20_000 - FAILURES - NEWS);
        assert!(text.contains("the disk is full\u{fffd}"), "{text:.500}");
    }

    #[test]
    fn a_kind_is_written_again_in_the_next_window() {
        let sparing = Sparing {
            kinds: Mutex::default(),
            spared: Arc::default(),
        };
        let enabled = tracing_subscriber::fmt().finish();
        let kind = || tracing::info_span!("a").metadata().unwrap().callsite();
        let (kind, now) = (tracing::subscriber::with_default(enabled, kind), Instant::now());
        let allowed = |now| {
            (0..1_000)
                .filter(|_| sparing.allows(kind.clone(), Level::WARN, now))
                .count() as u32
        };
        assert_eq!(allowed(now), FAILURES);
        assert_eq!(allowed(now + WINDOW / 2), 0);
        assert_eq!(allowed(now + WINDOW), FAILURES);
        assert!(sparing.allows(kind.clone(), Level::DEBUG, now));
    }

    #[test]
    fn numbers_in_the_log_have_four_digits() {
        let shown = [2.345_678_9, 0.25, 1e-9, -0.123_456, f64::MAX].map(|x| four_digits(x).to_string());
        assert_eq!(shown[..4], ["2.3457", "0.25", "0", "-0.1235"]);
        assert_eq!(shown[4], f64::MAX.to_string());
        assert!(four_digits(f64::NAN).is_nan());
    }
}
