//! Bytes in and out: little-endian, bounds-checked, every read naming the field it wanted.
//!
//! No other module does arithmetic on offsets into bytes from outside.

use crate::Error;

/// Reads fields from the front of some bytes.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Number of bytes read so far.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], Error> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..len).ok_or_else(|| Error::Truncated {
            what: what.to_owned(),
            offset: self.bytes.len(),
        })?;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, Error> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16, Error> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Seven bits a byte, lowest first, the top bit meaning that more follow; only the shortest form is taken.
    pub(crate) fn varint(&mut self, what: &str) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.u8(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(self.corrupt(what))
    }

    /// Succeeds if nothing is left.
    pub(crate) fn finish(&self, what: &str) -> Result<(), Error> {
        if self.offset == self.bytes.len() {
            Ok(())
        } else {
            Err(self.corrupt(what))
        }
    }

    /// The error for a field, just read, that breaks a rule.
    pub(crate) fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt {
            what: what.to_owned(),
            offset: self.offset,
        }
    }
}

/// Appends fields to a vector.
#[derive(Debug)]
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// What [`Reader::varint`] reads; `value` is below 2^63.
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Four bytes a value, through a buffer that stays in the nearest cache.
    pub(crate) fn f32s(&mut self, values: &[f32]) {
        let mut buffer = [0u8; 16 * 1024];
        for block in values.chunks(buffer.len() / 4) {
            for (bytes, value) in buffer.as_chunks_mut().0.iter_mut().zip(block) {
                *bytes = value.to_le_bytes();
            }
            self.bytes(&buffer[..block.len() * 4]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_round_trips_and_refuses_long_forms() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), (1 << 63) - 1] {
            let mut bytes = Vec::new();
            Writer(&mut bytes).varint(value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint("v"), Ok(value));
            assert_eq!(reader.finish("end"), Ok(()));
        }
        assert!(matches!(
            Reader::new(&[0x80, 0]).varint("v"),
            Err(Error::Corrupt { .. })
        ));
        assert!(matches!(
            Reader::new(&[0xff; 10]).varint("v"),
            Err(Error::Corrupt { .. })
        ));
        assert!(matches!(Reader::new(&[0x80]).varint("v"), Err(Error::Truncated { .. })));
    }

    #[test]
    fn short_reads_name_the_field() {
        let missing = Error::Truncated {
            what: "round".into(),
            offset: 3,
        };
        assert_eq!(Reader::new(&[1, 2, 3]).u64("round"), Err(missing));
    }
}
