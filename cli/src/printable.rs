//! Texts that may quote what somebody typed or sent, for a terminal.

/// Whether a character moves a terminal's cursor, beyond the next line, or turns the direction of writing.
pub(crate) fn is_wild(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// `text` without the characters that would move a terminal's cursor: it may quote what somebody typed or sent.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_wild(c) => out.extend(c.escape_default()),
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
        assert_eq!(printable("a\x1b[2Jb\tc\nd\r\u{202e}"), "a\\u{1b}[2Jb\tc\nd\\r\\u{202e}");
    }
}
