//! Texts of a peer on their way into errors, logs and files.

/// Whether a character shows in logs, tables and pages, and leaves the order of the others alone.
pub(crate) fn is_printable(c: char) -> bool {
    let formats = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c == ' ' || !(formats || c.is_control() || c.is_whitespace())
}

/// The beginning of a peer's text, at most `most` bytes on one line: every other character is a space. Each text of a peer that may be
/// shown, logged or stored goes through here.
pub fn foreign_text(text: &str, most: usize) -> String {
    let cut = &text[..text.floor_char_boundary(most)];
    cut.chars().map(|c| if is_printable(c) { c } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_of_bounded_length_that_moves_no_cursor() {
        assert_eq!(foreign_text("a\u{1b}[2J\nb\u{202e}c\u{2028}d", 99), "a [2J b c d");
        assert_eq!(foreign_text("ä ö", 4), "ä ");
        for most in 0..9 {
            assert!(foreign_text(&"\u{feff}ä€".repeat(9), most).len() <= most);
        }
    }
}
