//! What identifies the compressed form of a reply to `Join`.

/// Identifies what a client was told of a run: the beginning of the BLAKE3-256 of the compressed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunDigest(pub(crate) u64);
