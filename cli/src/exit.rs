//! Exit codes, and the line that explains a failure.

use crate::printable::printable;
use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of a failure that no other code describes.
pub const FAILURE: u8 = 1;
/// Exit code of wrong arguments or configuration.
pub const USAGE: u8 = 2;

/// The exit code of success, once the log is written.
pub fn done() -> ExitCode {
    crate::log::finish();
    ExitCode::SUCCESS
}

/// Prints `PROGRAM: why` on stderr and returns the exit code.
pub fn failed(program: &str, why: impl Display, code: u8) -> ExitCode {
    crate::log::finish();
    // A closed stderr cannot be helped; the exit code still tells.
    let _ = writeln!(std::io::stderr(), "{program}: {}", printable(&why.to_string()));
    ExitCode::from(code)
}

/// The error and its causes on one line, without the causes that the text before them quotes already.
pub fn chain(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .reduce(|text, cause| {
            if text.contains(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_error_quotes_is_not_said_twice() {
        let cause = std::io::Error::other("malformed");
        let quoting = anyhow::Error::new(cause).context("certificate or key: malformed; issue another");
        let error = quoting.context("the authority in fed cannot be used");
        assert_eq!(
            chain(&error),
            "the authority in fed cannot be used: certificate or key: malformed; issue another"
        );
        assert_eq!(chain(&anyhow::anyhow!("b").context("a")), "a: b");
    }
}
