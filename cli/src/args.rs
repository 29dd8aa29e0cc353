//! Arguments, and what a wrong argument prints.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Command, Parser};

use crate::{exit, out};

/// Parses the arguments of `program`; the first of `args` is its name.
///
/// # Errors
/// The exit code to return: success after `--help` or `--version`, [`exit::USAGE`] after a message about a wrong argument.
pub fn parse<C: Parser>(program: &str, args: impl IntoIterator<Item = OsString>) -> Result<C, ExitCode> {
    parse_as(program, C::command(), args)
}

/// As [`parse`], with `command` in place of that of the type: the same, with other texts.
///
/// # Errors
/// As there.
pub fn parse_as<C: Parser>(
    program: &str,
    mut command: Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<C, ExitCode> {
    let matches = command.try_get_matches_from_mut(args);
    let parsed = matches.and_then(|matches| C::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    parsed.map_err(|error| {
        if error.use_stderr() {
            return exit::failed(program, reason(&error), exit::USAGE);
        }
        // Help and version are results.
        match out::finish(error.print()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => exit::failed(program, exit::chain(&error), exit::FAILURE),
        }
    })
}

const MAX_SECONDS: f64 = 3600.0;

/// Reads a number of seconds above 0, such as `5` or `0.5`.
///
/// # Errors
/// The allowed numbers.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| *s > 0.0 && *s <= MAX_SECONDS);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected seconds, above 0 and at most {MAX_SECONDS}"))
}

/// The message without clap's own prefix.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.trim_end();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Args {
        #[arg(long)]
        run: Option<String>,
    }

    #[test]
    fn seconds_are_above_zero_and_finite() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "inf", "NaN", "3601", "5s", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_argument_is_named_without_a_second_prefix() {
        let why = reason(&Args::try_parse_from(["x", "--rum"]).unwrap_err());
        assert!(why.starts_with("unexpected argument '--rum'"), "{why}");
        let args: Args = parse("x", ["x", "--run", "a"].map(OsString::from)).unwrap();
        assert_eq!(args.run.as_deref(), Some("a"));
    }
}
