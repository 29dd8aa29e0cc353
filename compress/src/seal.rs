//! What every file and frame begins and ends with: magic, version and checksum.

use crate::Error;
use crate::wire::{Reader, Writer};

/// CRC-32C.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Takes magic and version from the front of `bytes` and the checksum of everything else from their end. Another major
/// version is refused, a newer minor version is tried.
pub(crate) fn unseal<'a>(bytes: &'a [u8], magic: &[u8; 4], known: u8) -> Result<Reader<'a>, Error> {
    let mut reader = Reader::new(bytes);
    if reader.take(magic.len(), "magic")? != magic {
        return Err(Error::Corrupt {
            what: "magic".to_owned(),
            offset: 0,
        });
    }
    let (major, minor) = (reader.u8("version")?, reader.u8("version")?);
    if major != known {
        return Err(Error::Mismatch(format!(
            "format version {major}.{minor}; only version {known} is known"
        )));
    }
    let len = bytes
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .filter(|&len| len >= reader.offset());
    let missing = || Error::Truncated {
        what: "checksum".to_owned(),
        offset: bytes.len(),
    };
    let (body, checksum) = bytes.split_at(len.ok_or_else(missing)?);
    if Reader::new(checksum).u32("checksum")? != crc32c::crc32c(body) {
        return Err(Error::Corrupt {
            what: "checksum".to_owned(),
            offset: body.len(),
        });
    }
    let mut body_reader = Reader::new(body);
    body_reader.take(reader.offset(), "version")?;
    Ok(body_reader)
}

/// Appends the checksum of `out[start..]`.
pub(crate) fn seal(start: usize, out: &mut Vec<u8>) {
    let checksum = crc32c::crc32c(&out[start..]);
    Writer(out).u32(checksum);
}
