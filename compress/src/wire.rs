//! The binary reader and writer of the workspace: little-endian and bounds-checked, with one checksum format for files.
//!
//! Every read names its field, and the error repeats that name with the offset at which the read failed. No other
//! module computes offsets into bytes from a peer or a disk.
//!
//! A file or frame begins with its format version, `[major, minor]`. A reader refuses another major version. It reads a newer
//! minor version as far as it knows what it meets, and names what it does not know.
//!
//! ```
//! use fl_compress::wire::{Writer, seal, unseal};
//!
//! let mut file = Vec::new();
//! let mut writer = Writer::new(&mut file);
//! writer.head(b"DEMO", [1, 0]);
//! writer.u64(7);
//! seal(0, &mut file);
//!
//! let mut reader = unseal(&file, b"DEMO", [1, 0])?;
//! assert_eq!(reader.u64("round")?, 7);
//! reader.finish("bytes after the round")?;
//! # Ok::<(), fl_compress::Error>(())
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// Length of the checksum (CRC-32C) that [`seal`] appends.
pub const CHECKSUM_BYTES: usize = 4;

/// Reads fields from the front of a byte slice.
///
/// # Errors
/// Every read returns `Truncated` if the bytes end before the field does.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// If the version of the bytes has a newer minor than that of the reader: both versions.
    newer: Option<[[u8; 2]; 2]>,
}

impl<'a> Reader<'a> {
    /// A reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            offset: 0,
            newer: None,
        }
    }

    /// Number of bytes read so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// Whether the bytes have a newer minor version than the reader.
    pub fn is_newer(&self) -> bool {
        self.newer.is_some()
    }

    /// Reads magic and version, with which a file begins. `version` is the newest that the caller knows.
    ///
    /// # Errors
    /// `Truncated`; `Corrupt` for another magic; `Mismatch` for another major version.
    pub fn head(&mut self, magic: &[u8; 4], version: [u8; 2]) -> Result<(), Error> {
        if self.take(magic.len(), "magic")? != magic {
            return Err(Error::Corrupt {
                what: "magic".to_owned(),
                offset: 0,
            });
        }
        let found = self.array::<2>("version")?;
        let [major, minor] = version;
        if found[0] != major {
            return Err(Error::Mismatch(format!(
                "format version {}.{}; this program reads version {major}.{minor}: use the program of that version",
                found[0], found[1]
            )));
        }
        self.newer = (found[1] > minor).then_some([found, version]);
        Ok(())
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], Error> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..len).ok_or_else(|| {
            self.unknown(what, self.bytes.len()).unwrap_or(Error::Truncated {
                what: what.to_owned(),
                offset: self.bytes.len(),
            })
        })?;
        self.offset += len;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self, what: &str) -> Result<u8, Error> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// Two bytes.
    pub fn u16(&mut self, what: &str) -> Result<u16, Error> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// `count` values of four bytes each. Allocates nothing.
    pub fn f32s(&mut self, count: usize, what: &str) -> Result<impl ExactSizeIterator<Item = f32> + 'a, Error> {
        // A length that overflows is longer than any slice.
        let bytes = self.take(count.saturating_mul(4), what)?;
        Ok(bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)))
    }

    /// Bytes, preceded by their length as `u64`.
    pub fn block(&mut self, what: &str) -> Result<&'a [u8], Error> {
        let len = self.u64(what)?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX), what)
    }

    /// A LEB128 integer: seven bits per byte, lowest first; the top bit is set if more bytes follow.
    ///
    /// # Errors
    /// `Corrupt` for values of 2^63 or more, and for any form but the shortest.
    pub fn varint(&mut self, what: &str) -> Result<u64, Error> {
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

    /// A value in the form of [`Writer::value`].
    ///
    /// # Errors
    /// `Truncated`; `Corrupt` for bytes in another form: a number that is longer than it must be, names of a set or map out of order.
    pub fn value<T: Serialize + DeserializeOwned>(&mut self, what: &str) -> Result<T, Error> {
        let bytes = &self.bytes[self.offset..];
        match postcard::take_from_bytes::<T>(bytes) {
            Ok((value, rest)) => {
                let taken = &bytes[..bytes.len() - rest.len()];
                let mut form = Vec::with_capacity(taken.len());
                Writer(&mut form).value(&value);
                if form != taken {
                    return Err(self.corrupt(what));
                }
                self.offset += taken.len();
                Ok(value)
            }
            // The error of a field that is longer than the bytes.
            Err(postcard::Error::DeserializeUnexpectedEnd) => self.take(usize::MAX, what).and(Err(self.corrupt(what))),
            Err(_) => Err(self.corrupt(what)),
        }
    }

    /// Succeeds at the end of the bytes.
    ///
    /// # Errors
    /// `Corrupt` with `what` if bytes are left.
    pub fn finish(&self, what: &str) -> Result<(), Error> {
        if self.left() == 0 {
            Ok(())
        } else {
            Err(self.corrupt(what))
        }
    }

    /// The error for an invalid value of the field just read: `Corrupt`, or `Mismatch` in a newer minor version, which may have
    /// other fields and values.
    pub fn corrupt(&self, what: &str) -> Error {
        self.unknown(what, self.offset).unwrap_or(Error::Corrupt {
            what: what.to_owned(),
            offset: self.offset,
        })
    }

    fn unknown(&self, what: &str, offset: usize) -> Option<Error> {
        let [found, known] = self.newer?.map(|[major, minor]| format!("{major}.{minor}"));
        Some(Error::Mismatch(format!(
            "format version {found} has at byte {offset} what version {known} does not know ({what}); update this program"
        )))
    }
}

/// Appends fields to a vector in the encoding of [`Reader`].
#[derive(Debug)]
pub struct Writer<'a>(&'a mut Vec<u8>);

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self(out)
    }

    /// Raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Four bytes per value.
    pub fn f32s(&mut self, values: &[f32]) {
        // The buffer stays in the L1 cache.
        let mut buffer = [0u8; 16 * 1024];
        for block in values.chunks(buffer.len() / 4) {
            for (bytes, value) in buffer.as_chunks_mut().0.iter_mut().zip(block) {
                *bytes = value.to_le_bytes();
            }
            self.bytes(&buffer[..block.len() * 4]);
        }
    }

    /// The counterpart of [`Reader::block`]; `write` appends the bytes of the block.
    pub fn block(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len() + 8;
        self.u64(0);
        write(self.0);
        let len = (self.0.len() - start) as u64;
        self.0[start - 8..start].copy_from_slice(&len.to_le_bytes());
    }

    /// Structs and enums in the form of postcard: numbers of variable length, floats little-endian, texts and lists after their length.
    /// A value has one form, so digests can be of it. Arrays of floats are shorter to read by [`Writer::f32s`].
    ///
    /// # Panics
    /// If its `Serialize` fails, or does not know a length.
    pub fn value(&mut self, value: &impl Serialize) {
        let before = std::mem::take(self.0);
        *self.0 = postcard::to_extend(value, before).expect("stored types have bytes");
    }

    /// The counterpart of [`Reader::varint`]. Range: `value < 2^63`.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Magic and version, with which a sealed file begins.
    pub fn head(&mut self, magic: &[u8; 4], version: [u8; 2]) {
        self.bytes(magic);
        self.bytes(&version);
    }
}

/// The bytes of one [`Writer::value`].
///
/// # Panics
/// As [`Writer::value`].
pub fn bytes_of(value: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    Writer(&mut out).value(value);
    out
}

/// Reads what [`bytes_of`] wrote, to the end of the bytes.
///
/// # Errors
/// As [`Reader::value`]; `Corrupt` if bytes are left.
pub fn value<T: Serialize + DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    let mut reader = Reader::new(bytes);
    let value = reader.value(what)?;
    reader.finish(what)?;
    Ok(value)
}

/// Appends the checksum of `out[start..]`.
pub fn seal(start: usize, out: &mut Vec<u8>) {
    let checksum = crc32c::crc32c(&out[start..]);
    Writer(out).u32(checksum);
}

/// Verifies the checksum at the end of `bytes`; returns a reader of the bytes before it.
///
/// # Errors
/// `Truncated` if `bytes` is shorter than a checksum, `Corrupt` if the checksum does not match.
pub fn checked(bytes: &[u8]) -> Result<Reader<'_>, Error> {
    let Some((body, checksum)) = bytes.split_last_chunk() else {
        return Err(Error::Truncated {
            what: "checksum".to_owned(),
            offset: bytes.len(),
        });
    };
    if u32::from_le_bytes(*checksum) != crc32c::crc32c(body) {
        return Err(Error::Corrupt {
            what: "checksum".to_owned(),
            offset: body.len(),
        });
    }
    Ok(Reader::new(body))
}

/// Verifies magic, version and checksum of a sealed file; returns a reader of the bytes between version and
/// checksum. `version` is the newest that the caller knows.
///
/// # Errors
/// `Truncated`; `Corrupt` for another magic or a wrong checksum; `Mismatch` for another major version.
pub fn unseal<'a>(bytes: &'a [u8], magic: &[u8; 4], version: [u8; 2]) -> Result<Reader<'a>, Error> {
    let mut reader = Reader::new(bytes);
    reader.head(magic, version)?;
    reader.clone().take(CHECKSUM_BYTES, "checksum")?;
    let mut body = checked(bytes)?;
    body.take(reader.offset(), "version")?;
    body.newer = reader.newer;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn varint_round_trips_and_refuses_long_forms() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), (1 << 63) - 1] {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).varint(value);
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
    fn a_value_has_one_form() {
        let read = |bytes: &[u8]| Reader::new(bytes).value::<BTreeSet<u16>>("numbers");
        assert_eq!(read(&[2, 7, 0x80, 1]), Ok([7, 128].into()));
        for other in [&[2, 9, 7][..], &[2, 7, 7], &[1, 0x87, 0], &[0x81, 0, 7]] {
            assert!(
                matches!(read(other), Err(Error::Corrupt { what, .. }) if what == "numbers"),
                "{other:?}"
            );
        }
        for short in [&[][..], &[2, 7], &[1, 0x80], &[0xff, 0xff, 0xff, 0xff, 15]] {
            assert!(
                matches!(read(short), Err(Error::Truncated { what, .. }) if what == "numbers"),
                "{short:?}"
            );
        }
    }

    #[test]
    fn short_reads_name_the_field() {
        let missing = Error::Truncated {
            what: "round".into(),
            offset: 3,
        };
        assert_eq!(Reader::new(&[1, 2, 3]).u64("round"), Err(missing));
    }

    #[test]
    fn every_form_reads_back_what_was_written() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.head(b"TEST", [3, 1]);
        writer.u16(7);
        writer.f32s(&[1.0, -2.0]);
        writer.value(&(300u16, Some("rank"), [-1i32]));
        writer.block(|out| out.extend([7, 8, 9]));
        seal(0, &mut bytes);
        let mut reader = unseal(&bytes, b"TEST", [3, 1]).unwrap();
        assert_eq!((reader.offset(), reader.u16("number")), (6, Ok(7)));
        assert_eq!(reader.f32s(2, "values").unwrap().collect::<Vec<_>>(), [1.0, -2.0]);
        let value: (u16, Option<String>, [i32; 1]) = reader.value("value").unwrap();
        assert_eq!(value, (300, Some("rank".to_owned()), [-1]));
        assert_eq!(reader.block("part"), Ok(&[7, 8, 9][..]));
        assert_eq!((reader.left(), reader.finish("end")), (0, Ok(())));
        let mut cut = bytes.clone();
        cut.truncate(8);
        assert!(matches!(
            unseal(&cut, b"TEST", [3, 1]),
            Err(Error::Truncated { offset: 8, .. })
        ));
        assert!(matches!(
            unseal(&bytes, b"ELSE", [3, 1]),
            Err(Error::Corrupt { offset: 0, .. })
        ));
        assert!(matches!(unseal(&bytes, b"TEST", [2, 0]), Err(Error::Mismatch(_))));
        bytes[10] ^= 1;
        assert!(matches!(checked(&bytes), Err(Error::Corrupt { what, .. }) if what == "checksum"));
    }

    #[test]
    fn a_newer_minor_version_is_read_and_what_is_unknown_in_it_is_named() {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).head(b"TEST", [1, 1]);
        Writer::new(&mut bytes).bytes(&[1, 7]);
        seal(0, &mut bytes);
        let read = |version: [u8; 2]| {
            let mut reader = unseal(&bytes, b"TEST", version)?;
            reader.u8("first")?;
            assert_eq!(reader.is_newer(), version == [1, 0]);
            reader.u8("second")?;
            Err::<(), _>(reader.corrupt("second"))
        };
        let refusal = |what: &str| {
            Error::Mismatch(format!(
                "format version 1.1 has at byte 8 what version 1.0 does not know ({what}); update this program"
            ))
        };
        assert_eq!(read([1, 0]), Err(refusal("second")));
        assert!(matches!(read([1, 1]), Err(Error::Corrupt { .. })));
        assert!(matches!(read([2, 0]), Err(Error::Mismatch(why)) if why.contains("reads version 2.0")));
        // The other way, a program of version 1.1 reads 1.0 and finds what 1.0 has.
        let mut older = b"TEST\x01\x00\x01".to_vec();
        seal(0, &mut older);
        let mut reader = unseal(&older, b"TEST", [1, 1]).unwrap();
        assert!(!reader.is_newer() && reader.u8("first") == Ok(1) && reader.finish("end").is_ok());
        // A flipped bit of the version is damage, not a newer version.
        let mut damaged = bytes.clone();
        damaged[5] = 9;
        assert!(matches!(unseal(&damaged, b"TEST", [1, 0]), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn absurd_lengths_are_truncated() {
        let bytes = [0xff; 12];
        assert!(matches!(
            Reader::new(&bytes).block("part"),
            Err(Error::Truncated { .. })
        ));
        assert!(Reader::new(&bytes).f32s(usize::MAX, "values").is_err());
    }
}
