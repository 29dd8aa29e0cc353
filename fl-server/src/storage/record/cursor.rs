//! Fields out of a record's bytes: little-endian, every read checked and naming the field it wanted.

use fl_compress::{Digest, Stages};
use fl_proto::ClientId;

use super::{Accepted, RecordError};

/// Reads fields from the front of some bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], RecordError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let taken = rest.get(..len).ok_or(RecordError::Truncated {
            what,
            offset: self.offset,
        })?;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RecordError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, RecordError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, RecordError> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, RecordError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, RecordError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn f64(&mut self, what: &'static str) -> Result<f64, RecordError> {
        self.array(what).map(f64::from_le_bytes)
    }

    pub(super) fn digest(&mut self, what: &'static str) -> Result<Digest, RecordError> {
        self.array(what).map(Digest)
    }

    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str, RecordError> {
        let len = self.u16(what)?;
        let bytes = self.take(usize::from(len), what)?;
        std::str::from_utf8(bytes).map_err(|_| self.corrupt(what))
    }

    pub(super) fn client(&mut self) -> Result<ClientId, RecordError> {
        let text = self.text("client")?;
        text.parse().map_err(|_| self.corrupt("client"))
    }

    /// A count, then that many names in strictly rising order.
    pub(super) fn clients(&mut self) -> Result<std::collections::BTreeSet<ClientId>, RecordError> {
        let count = self.u32("clients")?;
        // Its length is not taken from the count, which may be wrong.
        let mut out = Vec::new();
        for _ in 0..count {
            let client = self.client()?;
            if out.last().is_some_and(|last| *last >= client) {
                return Err(self.corrupt("clients"));
            }
            out.push(client);
        }
        // Faster than one by one: they are sorted.
        Ok(out.into_iter().collect())
    }

    pub(super) fn stages(&mut self) -> Result<Stages, RecordError> {
        Ok(Stages {
            fp32: self.u64("stages")?,
            reduced: self.u64("stages")?,
            quantized: self.u64("stages")?,
            coded: self.u64("stages")?,
            framed: self.u64("stages")?,
            bound: self.f64("stages")?,
        })
    }

    pub(super) fn accepted(&mut self) -> Result<Accepted, RecordError> {
        Ok(Accepted {
            digest: self.digest("digest")?,
            len: self.u64("len")?,
            examples: self.u64("examples")?,
            loss: self.f64("loss")?,
            train_ms: self.u64("train_ms")?,
            encode_ms: self.u64("encode_ms")?,
            stages: self.stages()?,
            at: self.u64("at")?,
        })
    }

    /// Succeeds if nothing is left.
    pub(super) fn finish(&self) -> Result<(), RecordError> {
        if self.offset == self.bytes.len() {
            Ok(())
        } else {
            Err(self.corrupt("end"))
        }
    }

    /// The error for a field, just read, that breaks a rule.
    pub(super) fn corrupt(&self, what: &'static str) -> RecordError {
        RecordError::Corrupt {
            what,
            offset: self.offset,
        }
    }
}
