//! One tensor of a safetensors file: a length, a JSON header, and the values of all tensors.

use std::{fmt, io};

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};

use super::element::Element;
use super::header::Header;
use crate::data::error::Error;
use crate::data::files::DataFile;

/// Longest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;
const WHAT: &str = "safetensors header";
const LISTED: usize = 20;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

pub(super) fn header(file: &mut DataFile, tensor: &str) -> Result<Header, Error> {
    let len = file.take(8, WHAT)?;
    let len = len.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
    if len > MAX_HEADER {
        let why = format!("no safetensors file: a header of {len} bytes; at most {MAX_HEADER} are allowed");
        return Err(Error::malformed(&file.path, why));
    }
    let text = file.take(len, WHAT)?;
    let mut json = serde_json::Deserializer::from_slice(&text);
    let entries = json
        .deserialize_map(Entries)
        .and_then(|entries| json.end().map(|()| entries));
    let entries =
        entries.map_err(|why| Error::malformed(&file.path, format!("no safetensors file: its header: {why}")))?;
    let mut found = entries.iter().filter(|(name, _)| name == tensor);
    let Some((_, entry)) = found.next() else {
        let mut names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.truncate(LISTED);
        let why = format!("has no tensor `{tensor}`; it has `{}`", names.join("`, `"));
        return Err(Error::malformed(&file.path, why));
    };
    if found.next().is_some() {
        return Err(Error::malformed(
            &file.path,
            format!("tensor `{tensor}` occurs twice in its header"),
        ));
    }
    let Some(element) = Element::of_safetensors(&entry.dtype) else {
        let why = format!(
            "tensor `{tensor}` has the type `{}`, which is not supported",
            entry.dtype
        );
        return Err(Error::malformed(&file.path, why));
    };
    let made = Header::new(element, entry.shape.clone());
    let header = made.map_err(|why| Error::malformed(&file.path, format!("tensor `{tensor}`: {why}")))?;
    let (from, to) = entry.data_offsets;
    if to.checked_sub(from) != Some(header.bytes()) {
        let why = format!(
            "tensor `{tensor}` of {} {:?} has {} bytes, but its place is {from} to {to}",
            entry.dtype,
            entry.shape,
            header.bytes()
        );
        return Err(Error::malformed(&file.path, why));
    }
    match io::copy(&mut io::Read::take(&mut *file, from), &mut io::sink()) {
        Ok(skipped) if skipped == from => Ok(header),
        Ok(found) => Err(Error::size(&file.path, "tensors", from, found)),
        Err(error) => Err(Error::io(&file.path, &error)),
    }
}

/// Collects the entries of the header in their order, without the metadata. A map would hide a name that occurs twice.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, Entry)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(entries)
    }
}
