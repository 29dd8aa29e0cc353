//! The bytes of stored values, by postcard: numbers of variable length, floats little-endian, texts and lists after their length. A
//! value has one form only, because the hash chain of the rounds is of these bytes.

use fl_compress::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Appends the bytes of `value`.
pub(crate) fn write(value: &impl Serialize, out: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, out).expect("a stored value has bytes")
}

/// Reads the bytes of [`write()`]. `what`: the value's name in errors.
///
/// # Errors
/// `Truncated`, `Corrupt`.
pub(crate) fn read<T: Serialize + DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    let what = || what.to_owned();
    let corrupt = |offset| Error::Corrupt { what: what(), offset };
    let (value, rest) = postcard::take_from_bytes::<T>(bytes).map_err(|why| match why {
        postcard::Error::DeserializeUnexpectedEnd => Error::Truncated {
            what: what(),
            offset: bytes.len(),
        },
        _ => corrupt(0),
    })?;
    // Names out of order, a name twice, and a number that is longer than it must be are other forms of the same value.
    if rest.is_empty() && write(&value, Vec::with_capacity(bytes.len())) == bytes {
        Ok(value)
    } else {
        Err(corrupt(bytes.len() - rest.len()))
    }
}
