//! Text files that people wrote: editors and spreadsheets of Windows put a byte order mark before the first character.

use std::io::{self, Read};

// The marks of UTF-16 and UTF-32, in both orders of bytes. That of UTF-32, least byte first, begins as that of UTF-16.
const OTHERS: [&[u8]; 3] = [b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"];

/// The bytes of a text without the byte order mark of UTF-8.
///
/// # Errors
/// If the mark is that of another encoding; the text begins with a verb.
pub fn unmarked(mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if OTHERS.iter().any(|mark| bytes.starts_with(mark)) {
        return Err("is UTF-16 or UTF-32; convert the file to UTF-8".to_owned());
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

/// The text of `file` without a byte order mark.
///
/// # Errors
/// Those of the system; `InvalidData` if there are more than `most` bytes, or they are not UTF-8.
pub fn read(file: impl Read, most: u64) -> io::Result<String> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(wrong(format!("more than the {most} bytes that such a file can have")));
    }
    let text = String::from_utf8(unmarked(bytes).map_err(wrong)?);
    text.map_err(|_| wrong("is not UTF-8; convert the file".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_utf_8_is_no_character_and_other_encodings_are_to_be_converted() {
        let text = |bytes: &[u8]| read(bytes, 9).map_err(|error| error.to_string());
        assert_eq!(text(b"\xef\xbb\xbfa = 1").unwrap(), "a = 1");
        assert_eq!(text(b"a\xef\xbb\xbf").unwrap(), "a\u{feff}");
        assert_eq!(text(b"").unwrap(), "");
        for (bytes, part) in [
            (&b"\xff\xfea\0"[..], "is UTF-16 or UTF-32; convert the file"),
            (b"\xfe\xff\0a", "is UTF-16 or UTF-32; convert the file"),
            (b"\xff\xfe\0\0a\0\0\0", "is UTF-16 or UTF-32; convert the file"),
            (b"\0\0\xfe\xff\0\0\0a", "is UTF-16 or UTF-32; convert the file"),
            (b"\xef\xbb", "is not UTF-8; convert the file"),
            (b"1234567890", "more than the 9 bytes"),
        ] {
            let why = text(bytes).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
