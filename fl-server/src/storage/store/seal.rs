//! Bytes with a version and a checksum, for values that are not records.

use crate::storage::record::RecordError;

/// Version byte, bytes, CRC-32C of both.
pub(super) fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 5);
    out.push(1);
    out.extend_from_slice(bytes);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Reads what [`seal`] wrote.
///
/// # Errors
/// `Truncated`, `Corrupt`, `Newer`.
pub(super) fn unseal(bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
    let short = RecordError::Truncated {
        what: "checksum",
        offset: bytes.len(),
    };
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(short)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(RecordError::Corrupt {
            what: "checksum",
            offset: body.len(),
        });
    }
    match body.split_first() {
        Some((1, rest)) => Ok(rest.to_vec()),
        Some((&theirs, _)) => Err(RecordError::Newer { theirs, ours: 1 }),
        None => Err(RecordError::Truncated {
            what: "version",
            offset: 0,
        }),
    }
}
