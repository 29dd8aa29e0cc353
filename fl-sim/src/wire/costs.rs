//! What messages take on a socket beside themselves: gRPC, HTTP/2 and TLS 1.3.
//!
//! Measured with `cargo test -p fl-sim --test e2e model_wire -- --nocapture --test-threads 1`, which prints the bytes of both
//! wires round by round and fails where they differ by more than 1 %. Each number is the difference for one connection, one
//! message or one call. A record more or less, by chance of timing, is 22 bytes.

/// Bytes up and down.
pub(super) type Cost = (u64, u64);

/// Opening a connection, beside the messages of joining: the handshake with both certificates, settings, the headers of `Join`
/// and `Watch`.
pub(super) const OPENING: Cost = (1_191, 1_120);

/// The second `Join` of a client, with its messages: it names the classes of the data when they have been read.
pub(super) const CLASSES: Cost = (157, 70);

/// Closing a connection after a run.
pub(super) const CLOSING: Cost = (63, 60);

/// `Fetch`, beside its messages down.
pub(super) const FETCH: Cost = (101, 89);

/// `Submit`, beside its messages up.
pub(super) const SUBMIT: Cost = (45, 50);

/// `Evaluate`.
pub(super) const EVALUATE: Cost = (104, 103);

/// Bytes of a TLS record beside its content.
const RECORD: u64 = 22;

/// Bytes of a frame of HTTP/2 beside its content.
const HEAD: u64 = 9;

/// Bytes of gRPC before a message.
const PREFIX: u64 = 5;

/// Longest content of a frame of HTTP/2, and of a TLS record: a full frame takes two records, because of its head.
const PIECE: u64 = 16 * 1024;

/// A frame of HTTP/2 that opens a flow-control window again, in its record.
const WINDOW: u64 = 13 + RECORD;

/// Bytes of a message of `len` bytes on an open stream.
pub(super) fn message(len: u64) -> u64 {
    let content = len + PREFIX;
    content + (HEAD + RECORD) * content.div_ceil(PIECE) + RECORD * (content / PIECE)
}

/// Bytes that the receiver of `len` bytes sends to open its window of `window` bytes again, whenever half of it is used. Only
/// long transfers use half of the window of their own stream; the window of the connection counts them all.
pub(super) fn windows(len: u64, window: u64) -> u64 {
    WINDOW * len / (window / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_its_frames_and_records() {
        assert_eq!(message(100), 136);
        assert_eq!(message(PIECE - PREFIX), PIECE + 31 + 22);
        assert_eq!(message(PIECE), PIECE + 5 + 2 * 31 + 22);
    }
}
