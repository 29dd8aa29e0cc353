//! The JSON header of a safetensors file: checks that the `safetensors` crate lacks, and a writer of deterministic
//! bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::error::Error;
use crate::layout::{self, Layout};
use crate::weights::foreign;
use crate::weights::integers::IntegerTensor;
use crate::weights::notes::Notes;

// Bytes of the length field before the header.
pub(crate) const LENGTH: usize = 8;
// Key of the metadata texts in the header.
const NOTES: &str = "__metadata__";

/// A safetensors file with a checked header.
#[derive(Debug)]
pub(crate) struct CheckedFile<'a> {
    pub(crate) header: Metadata,
    pub(crate) data: &'a [u8],
    pub(crate) notes: Notes,
}

impl<'a> CheckedFile<'a> {
    /// Checks the header of `bytes`: complete, no duplicate name.
    ///
    /// # Errors
    /// `Corrupt` if `bytes` is not a complete safetensors file or a name occurs twice in its header; `Usage` for a file of
    /// `torch.save`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (len, header) = SafeTensors::read_metadata(bytes).map_err(|why| match foreign::explained(bytes) {
            Some(why) => Error::Usage(why),
            None => Error::Corrupt {
                what: format!("not a complete safetensors file: {why}"),
                offset: 0,
            },
        })?;
        expect_unique(bytes)?;
        Ok(Self {
            notes: header.metadata().clone().unwrap_or_default().into_iter().collect(),
            data: &bytes[LENGTH + len..],
            header,
        })
    }

    /// The tensors by name: the header is a hash map, and sorting makes it deterministic which of two errors is reported.
    pub(crate) fn tensors(&self) -> BTreeMap<String, &TensorInfo> {
        self.header.tensors().into_iter().collect()
    }

    /// The bytes of a tensor. `safetensors` has checked the offsets against the length of `data`.
    pub(crate) fn bytes(&self, info: &TensorInfo) -> &'a [u8] {
        let (start, end) = info.data_offsets;
        &self.data[start..end]
    }
}

/// Succeeds if no key of the header occurs twice. The `safetensors` crate takes the last duplicate, other readers take
/// the first: two programs would read different tensors from one file. The `safetensors` crate must have accepted the
/// header of `file`.
///
/// # Errors
/// `Corrupt`, naming the key.
pub(crate) fn expect_unique(file: &[u8]) -> Result<(), Error> {
    let corrupt = |what: String| Error::Corrupt { what, offset: LENGTH };
    let header = file.first_chunk::<LENGTH>().and_then(|len| {
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        file[LENGTH..].get(..len)
    });
    let header = header.ok_or_else(|| corrupt("header of a safetensors file".to_owned()))?;
    let twice = serde_json::Deserializer::from_slice(header).deserialize_map(DuplicateKey);
    match twice.map_err(|why| corrupt(format!("header of a safetensors file: {why}")))? {
        None => Ok(()),
        Some(name) => Err(corrupt(format!(
            "tensor `{name}` occurs twice in the header of the safetensors file"
        ))),
    }
}

// Largest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// Reads the metadata texts of a safetensors file. Reads no byte after its header.
///
/// # Errors
/// `Corrupt` if the file does not begin with a valid header.
pub fn read_notes(mut file: impl Read) -> Result<Notes, Error> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(rename = "__metadata__", default)]
        notes: Notes,
    }
    let corrupt = |why: &dyn std::fmt::Display| Error::Corrupt {
        what: format!("not a complete safetensors file: {why}"),
        offset: 0,
    };
    let mut len = [0; LENGTH];
    file.read_exact(&mut len).map_err(|why| corrupt(&why))?;
    let len = u64::from_le_bytes(len);
    if len > MAX_HEADER {
        return Err(corrupt(&format!("a header of {len} bytes")));
    }
    let mut header = Vec::new();
    file.take(len).read_to_end(&mut header).map_err(|why| corrupt(&why))?;
    if header.len() as u64 != len {
        return Err(corrupt(&"the header is truncated"));
    }
    let header: Header = serde_json::from_slice(&header).map_err(|why| corrupt(&why))?;
    Ok(header.notes)
}

/// The type of a layout that equals `dtype`, if there is one.
pub(crate) fn own_type(dtype: Dtype) -> Option<layout::Dtype> {
    layout::Dtype::ALL.into_iter().find(|own| own.stored() == dtype)
}

struct DuplicateKey;

impl<'de> Visitor<'de> for DuplicateKey {
    type Value = Option<String>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut known = BTreeSet::new();
        let mut repeated = None;
        while let Some(name) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if repeated.is_none() && !known.insert(name.clone()) {
                repeated = Some(name);
            }
        }
        Ok(repeated)
    }
}

/// The bytes of a safetensors file around its floating-point values: `head`, the values, `tail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Length, header, and the tensors of 8-byte integers.
    pub head: Vec<u8>,
    /// The other integer tensors.
    pub tail: Vec<u8>,
}

impl Envelope {
    /// The envelope of the values of `layout`: deterministic in its arguments. The `safetensors` crate writes the same
    /// bytes, except for the order of several metadata texts.
    ///
    /// # Errors
    /// `Usage` if the header exceeds the limit of the format.
    pub fn new(layout: &Layout, integers: &[IntegerTensor<'_>], notes: &Notes) -> Result<Self, Error> {
        // Wide types first, as the format requires, so that every tensor is aligned.
        let mut sorted: Vec<&IntegerTensor<'_>> = integers.iter().collect();
        sorted.sort_by(|a, b| b.dtype.cmp(&a.dtype).then_with(|| a.name.cmp(&b.name)));
        let (before, after): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|tensor| tensor.dtype > Dtype::F32);
        let mut entries = Entries::new(notes);
        before.iter().for_each(|tensor| entries.add_integers(tensor));
        for tensor in layout.tensors() {
            entries.add(&tensor.name, Dtype::F32, &tensor.shape, 4 * tensor.len);
        }
        after.iter().for_each(|tensor| entries.add_integers(tensor));
        let mut head = entries.head()?;
        before.iter().for_each(|tensor| head.extend_from_slice(&tensor.bytes));
        let tail = after.iter().flat_map(|tensor| tensor.bytes.iter().copied()).collect();
        Ok(Self { head, tail })
    }
}

/// The entries of the header: metadata, and each tensor with its byte range.
pub(crate) struct Entries<'a> {
    notes: &'a Notes,
    tensors: Vec<(&'a str, TensorInfo)>,
    end: usize,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(notes: &'a Notes) -> Self {
        Self {
            notes,
            tensors: Vec::new(),
            end: 0,
        }
    }

    /// The bytes of the file before its values: length and header.
    ///
    /// # Errors
    /// `Usage` if the header exceeds the limit of the format.
    pub(crate) fn head(&self) -> Result<Vec<u8>, Error> {
        let mut header =
            serde_json::to_vec(self).map_err(|why| Error::Usage(format!("cannot be written as safetensors: {why}")))?;
        header.resize(header.len().next_multiple_of(LENGTH), b' ');
        if header.len() as u64 > MAX_HEADER {
            return Err(Error::Usage(format!(
                "cannot be written as safetensors: a header of {} bytes, at most {MAX_HEADER} are possible",
                header.len()
            )));
        }
        let mut head = (header.len() as u64).to_le_bytes().to_vec();
        head.append(&mut header);
        Ok(head)
    }

    fn add_integers(&mut self, tensor: &'a IntegerTensor<'_>) {
        self.add(&tensor.name, tensor.dtype, &tensor.shape, tensor.bytes.len());
    }

    /// Adds a tensor of so many `bytes` after those added before.
    pub(crate) fn add(&mut self, name: &'a str, dtype: Dtype, shape: &[usize], bytes: usize) {
        let info = TensorInfo {
            dtype,
            shape: shape.to_vec(),
            data_offsets: (self.end, self.end + bytes),
        };
        self.tensors.push((name, info));
        self.end += bytes;
    }
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.notes.is_empty() {
            map.serialize_entry(NOTES, self.notes)?;
        }
        self.tensors
            .iter()
            .try_for_each(|(name, info)| map.serialize_entry(name, info))?;
        map.end()
    }
}
