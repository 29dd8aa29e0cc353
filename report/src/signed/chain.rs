//! The seals of lines: each depends on every byte before it.

/// A seal: 64 lower-case hexadecimal digits.
pub(super) type Seal = [u8; 64];

/// The seal before the first line.
pub(super) const START: Seal = [b'0'; 64];
/// The context from which the key of seals is derived; each version of the format has its own.
const CONTEXT: &str = "fl-report signed report 1 line";
/// Bytes before a seal.
const BEFORE: &[u8] = b",\"seal\":\"";
/// Bytes after a seal.
const AFTER: &[u8] = b"\"}";
/// Length of a line without its content.
const TAIL: usize = BEFORE.len() + size_of::<Seal>() + AFTER.len();

/// Makes seals.
#[derive(Debug)]
pub(super) struct Sealer {
    keyed: blake3::Hasher,
}

impl Sealer {
    pub(super) fn new() -> Self {
        Self {
            keyed: blake3::Hasher::new_derive_key(CONTEXT),
        }
    }

    /// The seal of a line: BLAKE3 of the digits of the seal before it and of the line's content.
    pub(super) fn seal(&self, before: &Seal, content: &[u8]) -> Seal {
        let mut hasher = self.keyed.clone();
        hasher.update(before);
        hasher.update(content);
        let mut seal = START;
        seal.copy_from_slice(hasher.finalize().to_hex().as_bytes());
        seal
    }
}

/// Appends a line: its content, which is JSON without the closing brace, and its seal.
pub(super) fn append(out: &mut Vec<u8>, content: &[u8], seal: &Seal) {
    for part in [content, BEFORE, seal, AFTER, b"\n"] {
        out.extend_from_slice(part);
    }
}

/// Splits a line without its line end into content and seal; `None` if the line does not end in a seal.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], &Seal)> {
    let content = content(line)?;
    let seal = line[content.len()..].strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    let digits = seal.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    Some((content, seal.try_into().ok().filter(|_| digits)?))
}

/// The content of a line by its length, whatever the bytes in place of its seal are.
pub(super) fn content(line: &[u8]) -> Option<&[u8]> {
    line.len().checked_sub(TAIL).map(|len| &line[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_apart_as_it_was_put_together_and_its_seal_is_as_documented() {
        let seal = Sealer::new().seal(&START, b"{\"a\":1");
        let plain = [&START[..], b"{\"a\":1"].concat();
        let hash = blake3::Hash::from(blake3::derive_key(CONTEXT, &plain));
        assert_eq!(hash.to_hex().as_bytes(), seal);
        let mut line = Vec::new();
        append(&mut line, b"{\"a\":1", &seal);
        assert_eq!(split(line.trim_ascii_end()), Some((&b"{\"a\":1"[..], &seal)));
        assert_eq!(split(&line), None);
        assert_eq!(split(&line.trim_ascii_end().to_ascii_uppercase()), None);
    }
}
