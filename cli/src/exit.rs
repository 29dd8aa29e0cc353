//! Exit codes, and the line that explains a failure.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of a failure that no other code describes.
pub const FAILURE: u8 = 1;
/// Exit code of wrong arguments or configuration.
pub const USAGE: u8 = 2;

/// Prints `PROGRAM: why` on stderr and returns the exit code.
pub fn failed(program: &str, why: impl Display, code: u8) -> ExitCode {
    // A closed stderr cannot be helped; the exit code still tells.
    let _ = writeln!(std::io::stderr(), "{program}: {}", printable(&why.to_string()));
    ExitCode::from(code)
}

/// `text` without the control characters that would move a terminal's cursor: it may quote what somebody typed or sent.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_lines_stay() {
        assert_eq!(printable("a\x1b[2Jb\tc\nd\r"), "a\\u{1b}[2Jb\tc\nd\\r");
    }
}
