//! The version byte and the checksum of values that are not records.

use fl_compress::wire;

use crate::storage::record::RecordError;

const VERSION: u8 = 1;

/// Version byte, bytes, CRC-32C of both.
pub(super) fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + bytes.len() + wire::CHECKSUM_BYTES);
    out.push(VERSION);
    out.extend_from_slice(bytes);
    wire::seal(0, &mut out);
    out
}

/// Reads what [`seal`] wrote.
pub(super) fn unseal(bytes: &[u8]) -> Result<&[u8], RecordError> {
    let mut body = wire::checked(bytes)?;
    RecordError::check(body.u8("version")?, VERSION)?;
    Ok(body.take(body.left(), "value")?)
}
