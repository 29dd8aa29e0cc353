//! The log on stderr.

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

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
    fn numbers_in_the_log_have_four_digits() {
        let shown = [2.345_678_9, 0.25, 1e-9, -0.123_456, f64::MAX].map(|x| four_digits(x).to_string());
        assert_eq!(shown[..4], ["2.3457", "0.25", "0", "-0.1235"]);
        assert_eq!(shown[4], f64::MAX.to_string());
        assert!(four_digits(f64::NAN).is_nan());
    }
}
