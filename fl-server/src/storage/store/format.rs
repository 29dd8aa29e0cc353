//! The version of the store's tables, their keys, and the bytes of values that are not records.

use fl_compress::wire;

use crate::storage::record::RecordError;

/// A store of any other version is refused.
pub(super) const MAJOR: u8 = 1;
pub(super) const MINOR: u8 = 0;

pub(super) const VERSION_KEY: &[u8] = b"v";
/// Number of the last commit.
pub(super) const COMMITS_KEY: &[u8] = b"c";
/// Number of commits when the store was opened without its head file.
pub(super) const HEAD_MISSING_KEY: &[u8] = b"h";
/// Number of the next run.
pub(super) const NEXT_RUN_KEY: &[u8] = b"i";

/// Numbers of runs by name.
pub(super) const RUN: u8 = b'n';
pub(super) const RECORD: u8 = b'r';
pub(super) const ROW: u8 = b'l';
/// Named values.
pub(super) const META: u8 = b'm';
pub(super) const TAIL: u8 = b't';
/// Enrollment tokens of the federation.
pub(super) const TOKEN: u8 = b'k';
/// Their uses.
pub(super) const USE: u8 = b'u';
/// Clients of the federation.
pub(super) const CLIENT: u8 = b'f';

/// The start of the keys of a run in a table.
pub(super) fn prefix(table: u8, run: u32) -> [u8; 5] {
    let [a, b, c, d] = run.to_be_bytes();
    [table, a, b, c, d]
}

/// The sequence number of a key.
pub(super) fn sequence(key: &[u8]) -> Option<u64> {
    key.get(5..)?.try_into().ok().map(u64::from_be_bytes)
}

/// Version of a sealed value.
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
