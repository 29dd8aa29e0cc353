//! Finds TLS records of the size of a heartbeat in one direction of a connection, by the plain header of each record: its type
//! and length.
//!
//! TLS 1.3 encrypts everything else. The reader keeps a few bytes of state, allocates nothing, and never fails: after bytes
//! that cannot be TLS, it stops looking.

// Length of a record's header: type, an obsolete version, and length (RFC 8446, section 5.1).
const HEADER: usize = 5;
// Valid record types: change of cipher, alert, handshake, application data, heartbeat (RFC 6520).
const TYPES: std::ops::RangeInclusive<u8> = 20..=24;
// The outer type of every encrypted record.
const APPLICATION_DATA: u8 = 23;
// Longest content of an encrypted record (RFC 8446, section 5.2).
const LONGEST: usize = (1 << 14) + 256;
// An HTTP/2 PING: 9 bytes of frame header and 8 of its own (RFC 9113, section 6.7).
const PING: usize = 9 + 8;
// Bytes that TLS 1.3 adds to a record's content: the inner type and the cipher's tag.
const SEALED: usize = 1 + 16;

#[derive(Debug, Clone)]
pub(super) enum Records {
    /// Inside a header; `known` bytes of it are in `bytes`.
    Header { known: usize, bytes: [u8; HEADER] },
    /// Inside a record's content; `left` bytes are to come.
    Content { left: usize, ping: bool },
    /// The stream is not TLS.
    Other,
}

impl Default for Records {
    fn default() -> Self {
        Self::Header {
            known: 0,
            bytes: [0; HEADER],
        }
    }
}

impl Records {
    /// Takes the next bytes of the stream. Returns the bytes (headers included) of the completed records that have exactly the
    /// size of a lone PING. The GOAWAY at the end of a connection is the only other frame of that size.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> u64 {
        let mut pings = 0;
        while !bytes.is_empty() {
            match self {
                Self::Content { left, ping } => {
                    let taken = bytes.len().min(*left);
                    bytes = &bytes[taken..];
                    *left -= taken;
                    if *left == 0 {
                        pings += u64::from(*ping) * (HEADER + PING + SEALED) as u64;
                        *self = Self::default();
                    }
                }
                Self::Header { known, bytes: header } => {
                    let taken = bytes.len().min(HEADER - *known);
                    header[*known..*known + taken].copy_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    *known += taken;
                    if *known == HEADER {
                        *self = Self::after(*header);
                    }
                }
                Self::Other => break,
            }
        }
        pings
    }

    fn after([kind, _, _, high, low]: [u8; HEADER]) -> Self {
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !TYPES.contains(&kind) || len > LONGEST {
            Self::Other
        } else if len == 0 {
            Self::default()
        } else {
            Self::Content {
                left: len,
                ping: kind == APPLICATION_DATA && len == PING + SEALED,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, len: usize) -> Vec<u8> {
        let [high, low] = (len as u16).to_be_bytes();
        [vec![kind, 3, 3, high, low], vec![0xa5; len]].concat()
    }

    #[test]
    fn only_application_data_of_the_size_of_a_ping_counts() {
        let mut records = Records::default();
        let mut pass = |kind, len| records.pass(&record(kind, len));
        assert_eq!([pass(22, 34), pass(21, 34), pass(20, 1), pass(24, 34)], [0; 4]);
        assert_eq!([pass(23, 33), pass(23, 35), pass(23, 0), pass(23, LONGEST)], [0; 4]);
        assert_eq!(pass(23, 34), 39);
        assert_eq!(records.pass(&[record(23, 34), record(23, 34)].concat()), 78);
    }

    #[test]
    fn what_is_not_tls_is_never_looked_at_again() {
        for garbage in [
            &b"GET / HTTP/1.1\r\n"[..],
            &[23, 3, 3, 0x41, 1],
            &[0; 9],
            &[19, 3, 3, 0, 34],
        ] {
            let mut records = Records::default();
            assert_eq!(records.pass(garbage), 0);
            assert_eq!(records.pass(&record(23, 34)), 0);
            assert!(matches!(records, Records::Other), "{garbage:?}");
        }
    }

    proptest! {
        #[test]
        fn any_split_counts_the_same(
            kinds in prop::collection::vec((0..5usize, 0..80usize), 0..12),
            cuts in prop::collection::vec(0..600usize, 0..40),
        ) {
            // One kind of five is a ping, so that most cases have some; one is garbage if its length is too long.
            let records = kinds.iter().map(|&(kind, len)| match kind {
                0 | 1 => record(23, 34),
                2 => record(22, len),
                3 => record(23, len),
                _ => record(if len == 0 { 9 } else { 21 }, len),
            });
            let stream: Vec<u8> = records.flatten().collect();
            let whole = Records::default().pass(&stream);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut records = Records::default();
            let split: u64 = cuts.windows(2).map(|cut| records.pass(&stream[cut[0]..cut[1]])).sum();
            prop_assert_eq!(split, whole);
            let mut records = Records::default();
            let bytewise: u64 = stream.iter().map(|byte| records.pass(std::slice::from_ref(byte))).sum();
            prop_assert_eq!(bytewise, whole);
        }
    }
}
