//! Little-endian fields of the state files: every read is bounds-checked and names the field.

use fl_compress::Digest;

/// Reads fields from the front of some bytes. An error is the name of the field that is missing.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], &'static str> {
        let (front, rest) = self.0.split_at_checked(len).ok_or(what)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], &'static str> {
        self.take(N, what).and_then(|bytes| bytes.try_into().map_err(|_| what))
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, &'static str> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, &'static str> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, &'static str> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn digest(&mut self, what: &'static str) -> Result<Digest, &'static str> {
        self.array(what).map(Digest)
    }

    /// Checks that the file is of this kind and major version.
    pub(super) fn magic(&mut self, magic: &[u8; 4], major: u8) -> Result<(), &'static str> {
        if self.take(4, "magic")? != magic {
            return Err("magic");
        }
        let (found, _minor) = (self.u8("version")?, self.u8("version")?);
        if found == major {
            Ok(())
        } else {
            Err("version (written by another release)")
        }
    }
}

/// `body` and the CRC-32C of it.
pub(super) fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let sum = crc32c::crc32c(&body);
    body.extend_from_slice(&sum.to_le_bytes());
    body
}

/// What [`sealed`] sealed.
pub(super) fn unsealed(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or("checksum")?;
    if crc32c::crc32c(body) == u32::from_le_bytes(*sum) {
        Ok(body)
    } else {
        Err("checksum")
    }
}
