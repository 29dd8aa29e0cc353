//! Archives (`.flz`): a frame and its layout in one self-contained file.
//!
//! ```text
//! "FLCZ" | version | tensors: names and shapes | frame, as it is sent | integer tensors | CRC-32C
//! ```

use crate::error::Error;
use crate::layout::{Layout, MAX_DIMS, MAX_TENSORS};
use crate::weights::integers::IntegerTensor;
use crate::wire::{Reader, Writer, seal, unseal};

const VERSION: [u8; 2] = [1, 0];

/// An archive with a checked checksum and layout; the frame is not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive<'a> {
    /// Names and shapes of the tensors.
    pub layout: Layout,
    /// The encoded update, for [`crate::Frame::parse`].
    pub frame: &'a [u8],
    /// Offset of the frame in the archive.
    pub frame_offset: usize,
    /// The integer tensors, sorted by name, which are stored unchanged. None of them is in the layout.
    pub integers: Vec<IntegerTensor<'a>>,
}

impl<'a> Archive<'a> {
    /// The first bytes of every archive.
    pub const MAGIC: &'static [u8; 4] = b"FLCZ";

    /// The archive of `frame`, which has the layout `layout`, and of `integers`, which are sorted by name.
    pub fn write(layout: &Layout, frame: &[u8], integers: &[IntegerTensor<'_>]) -> Vec<u8> {
        let integer_bytes: usize = integers.iter().map(|tensor| tensor.bytes().len()).sum();
        let tensors = 1 + layout.tensors().len() + integers.len();
        let mut out = Vec::with_capacity(frame.len() + integer_bytes + 64 * tensors);
        let mut writer = Writer::new(&mut out);
        writer.head(Self::MAGIC, VERSION);
        writer.varint(layout.tensors().len() as u64);
        for tensor in layout.tensors() {
            writer.u8(tensor.name.len() as u8);
            writer.bytes(tensor.name.as_bytes());
            writer.u8(tensor.shape.len() as u8);
            tensor.shape.iter().for_each(|&extent| writer.varint(extent as u64));
        }
        writer.varint(frame.len() as u64);
        writer.bytes(frame);
        writer.varint(integers.len() as u64);
        integers.iter().for_each(|tensor| tensor.write(&mut writer));
        seal(0, &mut out);
        out
    }

    /// Reads the output of [`Archive::write`]. Allocates only for names and shapes, at most the size of `bytes`.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`; `Mismatch` for another version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = unseal(bytes, Self::MAGIC, VERSION)?;
        let what = "number of tensors";
        let count = reader.varint(what)?;
        if count > MAX_TENSORS as u64 {
            return Err(reader.corrupt(what));
        }
        let mut tensors: Vec<(String, Vec<usize>)> = Vec::new();
        for _ in 0..count {
            let tensor = read_tensor(&mut reader)?;
            if tensors.last().is_some_and(|(last, _)| *last >= tensor.0) {
                return Err(reader.corrupt("order of the tensors"));
            }
            tensors.push(tensor);
        }
        let layout = Layout::new(tensors).map_err(|why| reader.corrupt(&why.to_string()))?;
        let what = "frame length";
        let len = usize::try_from(reader.varint(what)?).map_err(|_| reader.corrupt(what))?;
        let frame_offset = reader.offset();
        let frame = reader.take(len, "frame")?;
        let integers = read_integers(&mut reader, &layout)?;
        reader.finish("bytes after the integer tensors")?;
        Ok(Self {
            layout,
            frame,
            frame_offset,
            integers,
        })
    }
}

/// Reads the integer tensors and checks that their names ascend and are not in `layout`.
fn read_integers<'a>(reader: &mut Reader<'a>, layout: &Layout) -> Result<Vec<IntegerTensor<'a>>, Error> {
    let what = "number of integer tensors";
    let count = reader.varint(what)?;
    if count > MAX_TENSORS as u64 {
        return Err(reader.corrupt(what));
    }
    let mut tensors: Vec<IntegerTensor<'a>> = Vec::new();
    for _ in 0..count {
        let tensor = IntegerTensor::read(reader)?;
        if tensors.last().is_some_and(|last| last.name >= tensor.name) {
            return Err(reader.corrupt("order of the integer tensors"));
        }
        let floats = layout.tensors();
        if floats.binary_search_by(|float| float.name.cmp(&tensor.name)).is_ok() {
            return Err(reader.corrupt("duplicate name of a tensor"));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

fn read_tensor(reader: &mut Reader<'_>) -> Result<(String, Vec<usize>), Error> {
    let len = usize::from(reader.u8("name length")?);
    let name = std::str::from_utf8(reader.take(len, "name")?).map_err(|_| reader.corrupt("name"))?;
    let dims = usize::from(reader.u8("number of dimensions")?);
    if dims > MAX_DIMS {
        return Err(reader.corrupt("number of dimensions"));
    }
    let mut shape = Vec::with_capacity(dims);
    for _ in 0..dims {
        let extent = reader.varint("dimension")?;
        shape.push(usize::try_from(extent).map_err(|_| reader.corrupt("dimension"))?);
    }
    Ok((name.to_owned(), shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Layout, Vec<u8>) {
        let layout = Layout::new([("bias", vec![3]), ("scalar", vec![]), ("weight", vec![4, 300])]).unwrap();
        let bytes = Archive::write(&layout, b"frame", &[]);
        (layout, bytes)
    }

    /// `body` with magic, version and checksum.
    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut bytes = [Archive::MAGIC, &VERSION[..], body].concat();
        seal(0, &mut bytes);
        bytes
    }

    /// A safetensors file of a counter, a mask and a float.
    fn batch_norm() -> Vec<u8> {
        let header = br#"{"bn.num":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[12,15]}}"#;
        let len = (header.len() as u64).to_le_bytes();
        [&len, &header[..], &[5, 1, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0], &[1, 0, 1]].concat()
    }

    #[test]
    fn an_archive_round_trips() {
        let (layout, bytes) = example();
        let archive = Archive::parse(&bytes).unwrap();
        assert_eq!((&archive.layout, archive.frame), (&layout, &b"frame"[..]));
        assert_eq!(&bytes[archive.frame_offset..][..5], b"frame");
        let none = Layout::new(Vec::<(String, _)>::new()).unwrap();
        assert_eq!(Archive::parse(&Archive::write(&none, b"", &[])).unwrap().layout, none);
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let layout = Layout::new([("bias", vec![3]), ("weight", vec![4, 300])]).unwrap();
        let expected = b"FLCZ\x01\x00\x02\x04bias\x01\x03\x06weight\x02\x04\xac\x02\x05frame\x00";
        let bytes = Archive::write(&layout, b"frame", &[]);
        assert_eq!(&bytes[..bytes.len() - 4], expected);
        assert_eq!(bytes, sealed(&expected[6..]));
    }

    #[test]
    fn the_bytes_with_integers_are_those_of_the_format() {
        let file = batch_norm();
        let weights = crate::weights::Weights::parse(&file).unwrap();
        let bytes = Archive::write(weights.layout(), b"frame", weights.integers());
        let expected = b"FLCZ\x01\x00\x01\x01w\x01\x01\x05frame\
            \x02\x06bn.num\x07\x00\x05\x01\0\0\0\0\0\0\x04mask\x00\x01\x03\x01\x00\x01";
        assert_eq!(&bytes[..bytes.len() - 4], expected);
        let archive = Archive::parse(&bytes).unwrap();
        assert_eq!(archive.integers, weights.integers());
        assert_eq!((&archive.layout, archive.frame), (weights.layout(), &b"frame"[..]));
        for len in 0..bytes.len() {
            assert!(Archive::parse(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn integers_that_a_checksum_cannot_rule_out_are_refused() {
        let refused = |tensors: &[u8]| {
            let body = [&[1, 1, b'w', 1, 1, 0][..], tensors].concat();
            Archive::parse(&sealed(&body)).unwrap_err().to_string()
        };
        assert!(refused(&[]).contains("truncated"));
        assert!(refused(&[0x80, 0x80, 4]).contains("number of integer tensors"));
        assert!(refused(&[1, 1, b'w', 1, 1, 1, 9]).contains("duplicate name"));
        assert!(refused(&[2, 1, b'b', 1, 0, 9, 1, b'a', 1, 0, 9]).contains("order of the integer tensors"));
        assert!(refused(&[1, 1, b'a', 9, 0, 9]).contains("type of a tensor"));
        assert!(refused(&[1, 1, b'a', 1, 1, 0xff, 0xff, 0xff, 0xff, 15, 9]).contains("truncated"));
        assert!(
            refused(&[1, 1, b'a', 8, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).contains("dimension")
        );
        assert!(refused(&[1, 1, b'a', 1, 0, 9, 9]).contains("bytes after the integer tensors"));
    }

    #[test]
    fn every_truncation_and_flipped_bit_is_refused() {
        let (_, bytes) = example();
        for len in 0..bytes.len() {
            assert!(Archive::parse(&bytes[..len]).is_err(), "{len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Archive::parse(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_a_checksum_cannot_rule_out_is_refused() {
        let refused = |body: &[u8]| Archive::parse(&sealed(body)).unwrap_err().to_string();
        assert!(refused(&[0x80, 0x80, 4]).contains("number of tensors"));
        assert!(refused(&[1, 0, 0, 0]).contains("1 to 255 bytes"));
        assert!(refused(&[1, 1, 0xff, 0, 0]).contains("name"));
        assert!(refused(&[1, 1, b'a', 9]).contains("number of dimensions"));
        assert!(refused(&[1, 1, b'a', 2, 0xff, 0xff, 0xff, 0xff, 15, 2, 0]).contains("larger than"));
        assert!(refused(&[2, 1, b'b', 0, 1, b'a', 0, 0]).contains("order of the tensors"));
        assert!(refused(&[2, 1, b'a', 0, 1, b'a', 0, 0]).contains("order of the tensors"));
        assert!(refused(&[1, 1, b'a', 0, 1]).contains("truncated"));
        assert!(refused(&[1, 1, b'a', 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).contains("frame"));
        assert!(refused(&[1, 1, b'a', 0, 0, 0, 0]).contains("bytes after the integer tensors"));
    }
}
