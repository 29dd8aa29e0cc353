//! The secret of an enrollment line.

use std::fmt;

use fl_compress::Digest;
use zeroize::Zeroize;

use crate::error::ProtocolError;

/// 128 random bits. Wiped from memory when dropped, and never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; Secret::LEN]);

impl Secret {
    /// Bytes of a secret.
    pub const LEN: usize = 16;

    /// Draws a secret from the system's random bytes.
    ///
    /// # Errors
    /// The system has none.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; Self::LEN];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The secret with these bytes.
    ///
    /// # Errors
    /// `Invalid` if they are not [`Secret::LEN`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let bytes = bytes.try_into();
        bytes
            .map(Self)
            .map_err(|_| ProtocolError::invalid("secret", "must be 16 bytes"))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// What a server stores in place of the secret. The secret is random, so a plain hash cannot be guessed back.
    pub fn digest(&self) -> Digest {
        Digest::of(&[&b"fl enrollment secret\n"[..], &self.0].concat())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
