//! Files of one value.

use fl_compress::wire::{Writer, seal};
use serde::Serialize;

/// Magic and version, the value, what follows it, and a checksum.
pub(crate) fn sealed(magic: &[u8; 4], version: [u8; 2], value: &impl Serialize, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + rest.len());
    let mut writer = Writer::new(&mut out);
    writer.head(magic, version);
    writer.value(value);
    writer.bytes(rest);
    seal(0, &mut out);
    out
}
