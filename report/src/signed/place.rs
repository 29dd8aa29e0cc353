//! Where a signed report was changed, in words.

use std::fmt;

/// A line that is not what was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 1.
    pub line: usize,
    /// Its first byte in the file, from 0.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
    /// What it is about, as far as its bytes still say: `participation, round 12, client camera-07`; may be empty.
    pub about: String,
    /// What happened to it.
    pub change: Change,
}

/// What happened to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It does not follow from the line before it: one of its bytes was changed, or lines before it were taken out.
    Content,
    /// Only its seal was changed.
    Seal,
    /// It does not end in a seal.
    Form,
    /// It is the line before it once more.
    Doubled,
    /// The line after it follows from the line before it: it does not belong there.
    Foreign,
}

impl Change {
    fn text(self) -> &'static str {
        match self {
            Self::Content => "its bytes were changed, or lines before it were taken out or moved",
            Self::Seal => "its seal was changed",
            Self::Form => "it does not end in a seal as every line does",
            Self::Doubled => "it is the line before it once more",
            Self::Foreign => "it was put in, or moved there",
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

/// What a line is about: read leniently, for it may be damaged anywhere.
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

/// Bytes of a line in which its names stand.
const SCANNED: usize = 512;
/// Characters that a name is shown with.
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
