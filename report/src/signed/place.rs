//! Where a signed report was changed, in words.

use std::fmt;

/// A line that is not what was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Line number, from 1.
    pub line: usize,
    /// Offset of its first byte in the file.
    pub start: usize,
    /// Offset after its last byte.
    pub end: usize,
    /// What the line describes, as far as its bytes still show: `participation, round 12, client camera-07`; may be empty.
    pub about: String,
    /// What happened to the line.
    pub change: Change,
}

/// What happened to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The seal does not match: a byte of the line was changed, or lines before it were removed.
    Content,
    /// Only the seal was changed.
    Seal,
    /// The line does not end in a seal.
    Form,
    /// The line repeats the line before it.
    Doubled,
    /// The line was inserted: the line after it follows the line before it.
    Foreign,
}

impl Change {
    fn text(self) -> &'static str {
        match self {
            Self::Content => "its bytes were changed, or lines before it were removed or moved",
            Self::Seal => "its seal was changed",
            Self::Form => "it does not end in a seal as every line does",
            Self::Doubled => "it repeats the line before it",
            Self::Foreign => "it was inserted or moved there",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, start, end, .. } = self;
        write!(f, "line {line} (bytes {start} to {end}")?;
        if !self.about.is_empty() {
            write!(f, "; {}", self.about)?;
        }
        write!(f, "): {}", self.change.text())
    }
}

/// Describes a line, which may be damaged anywhere.
pub(super) fn about(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(SCANNED)]);
    let mut found = Vec::new();
    found.extend(word(&text, "{\"kind\":\""));
    found.extend(number(&text, "\"round\":").map(|round| format!("round {round}")));
    for (member, name) in [
        (",\"direction\":\"", ""),
        (",\"client\":\"", "client "),
        (",\"tensor\":\"", "tensor "),
    ] {
        found.extend(word(&text, member).map(|word| format!("{name}{word}")));
    }
    found.join(", ")
}

/// Bytes of a line that are searched for its names.
const SCANNED: usize = 512;
/// Longest name that is shown, in characters.
const SHOWN: usize = 80;

fn word(text: &str, before: &str) -> Option<String> {
    let rest = &text[text.find(before)? + before.len()..];
    let word = rest.split('"').next().unwrap_or_default();
    Some(word.chars().take(SHOWN).flat_map(char::escape_debug).collect())
}

fn number(text: &str, before: &str) -> Option<String> {
    let rest = &text[text.find(before)? + before.len()..];
    let digits: String = rest.chars().take_while(char::is_ascii_digit).take(20).collect();
    Some(digits).filter(|digits| !digits.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_is_about_even_if_it_is_damaged() {
        let line = br#"{"kind":"participation","round":12,"client":"camera-07","asked":tr"#;
        assert_eq!(about(line), "participation, round 12, client camera-07");
        assert_eq!(
            about(br#"{"kind":"tensor","round":3,"direction":"up","tensor":"a.b"}"#),
            "tensor, round 3, up, tensor a.b"
        );
        assert_eq!(about(b"{\"kind\":\"\x1b[31m"), "\\u{1b}[31m");
        assert_eq!(about(b"\xff\"round\":x"), "");
    }
}
