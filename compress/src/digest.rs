//! Content digests: BLAKE3-256 of bytes, written as 64 lower-case hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A BLAKE3-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Digest of all that is left in `file`, read in blocks.
    ///
    /// # Errors
    /// Those of `file`.
    pub fn of_reader(file: impl std::io::Read) -> std::io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file)?;
        Ok(Self(*hasher.finalize().as_bytes()))
    }

    /// Digest of the little-endian bytes of `values`: the identity of a model, the same on every machine.
    pub fn of_f32(values: &[f32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = [0u8; 16 * 1024];
        for block in values.chunks(buffer.len() / 4) {
            for (bytes, value) in buffer.chunks_exact_mut(4).zip(block) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
            hasher.update(&buffer[..block.len() * 4]);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The first eight bytes as a little-endian integer: the short fingerprint in headers.
    pub fn short(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(first)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Usage(format!("a digest must be 64 hexadecimal digits, not `{text}`"));
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(bad());
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
            let high = (pair[0] as char).to_digit(16).ok_or_else(bad)?;
            let low = (pair[1] as char).to_digit(16).ok_or_else(bad)?;
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self(out))
    }
}
