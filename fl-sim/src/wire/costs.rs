//! What messages take on a socket beside themselves: gRPC, HTTP/2 and TLS 1.3.
//!
//! Measured with `cargo test -p fl-sim --test e2e model_wire -- --nocapture`, which prints the bytes of both wires and fails
//! where they differ by more than 1 %.

/// Bytes of one connection beside the messages of joining: handshake with both certificates, settings, the headers of `Join` and
/// `Watch`, closing. Up and down.
pub(super) const CONNECTION: (u64, u64) = (0, 0);

/// What a call takes beside its messages: headers, trailers, and the framing of a single message. The first of its kind on a
/// connection names what later ones only refer to.
pub(super) struct Call {
    first: (u64, u64),
    later: (u64, u64),
}

impl Call {
    /// Bytes up. `again`: whether it is not the first of its kind.
    pub(super) const fn up(&self, again: bool) -> u64 {
        if again { self.later.0 } else { self.first.0 }
    }

    /// Bytes down.
    pub(super) const fn down(&self, again: bool) -> u64 {
        if again { self.later.1 } else { self.first.1 }
    }
}

pub(super) const FETCH: Call = Call {
    first: (0, 0),
    later: (0, 0),
};

pub(super) const SUBMIT: Call = Call {
    first: (0, 0),
    later: (0, 0),
};

pub(super) const EVALUATE: Call = Call {
    first: (0, 0),
    later: (0, 0),
};

/// Bytes of a TLS record beside its content.
const RECORD: u64 = 22;

/// Bytes of a frame of HTTP/2 beside its content.
const HEAD: u64 = 9;

/// Bytes of gRPC before a message.
const PREFIX: u64 = 5;

/// Longest content of a frame of HTTP/2.
const PIECE: u64 = 16 * 1024;

/// Bytes of a message of `len` bytes on an open stream.
pub(super) fn message(len: u64) -> u64 {
    let content = len + PREFIX;
    content + (HEAD + RECORD) * content.div_ceil(PIECE)
}

/// Bytes down that open the flow-control window of an upload of `len` bytes again.
pub(super) fn windows(_len: u64) -> u64 {
    0
}
