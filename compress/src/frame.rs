//! The decoder's view of one encoded update.

use crate::recipe::Recipe;
use crate::section::{PlaneBytes, Section, Sink};
use crate::wire::{Reader, Writer};
use crate::{Error, Layout, Tensor};

pub(crate) const MAGIC: &[u8; 4] = b"FLCF";
/// A frame of a newer major version is refused; of a newer minor version it is tried.
pub(crate) const MAJOR: u8 = 1;
pub(crate) const MINOR: u8 = 0;
const CHECKSUM_BYTES: usize = 4;
/// Bytes of a frame beside its sections.
pub(crate) const OVERHEAD: usize = 34 + CHECKSUM_BYTES;

/// What a frame's values mean to the model it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A client's update: local model minus the model it started from.
    Update,
    /// The server's step: added to every model of the previous version.
    Step,
    /// A whole model, exact.
    Snapshot,
}

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the values mean.
    pub kind: FrameKind,
    /// Update: the round it answers. Step and snapshot: the model version it leads to.
    pub round: u64,
    /// Seed of every random choice made in encoding.
    pub seed: u64,
}

impl FrameHeader {
    /// Appends all that comes before the first section.
    pub(crate) fn write(&self, layout: &Layout, out: &mut Vec<u8>) {
        let mut out = Writer(out);
        out.bytes(MAGIC);
        out.u8(MAJOR);
        out.u8(MINOR);
        out.u8(match self.kind {
            FrameKind::Update => 0,
            FrameKind::Step => 1,
            FrameKind::Snapshot => 2,
        });
        out.u8(0);
        out.u64(layout.fingerprint());
        out.u64(self.round);
        out.u64(self.seed);
        out.u16(layout.tensors().len() as u16);
    }

    fn read(reader: &mut Reader<'_>, layout: &Layout) -> Result<Self, Error> {
        let kind = match reader.u8("kind")? {
            0 => FrameKind::Update,
            1 => FrameKind::Step,
            2 => FrameKind::Snapshot,
            _ => return Err(reader.corrupt("kind")),
        };
        if reader.u8("reserved byte")? != 0 {
            return Err(reader.corrupt("reserved byte"));
        }
        if reader.u64("layout fingerprint")? != layout.fingerprint() {
            return Err(Error::Mismatch("the frame is for another layout".to_owned()));
        }
        let header = Self { kind, round: reader.u64("round")?, seed: reader.u64("seed")? };
        if usize::from(reader.u16("number of sections")?) != layout.tensors().len() {
            return Err(reader.corrupt("number of sections"));
        }
        Ok(header)
    }
}

/// Takes magic and version from the front of `bytes` and the checksum of everything else from their end.
pub(crate) fn unseal<'a>(bytes: &'a [u8], magic: &[u8; 4], newest: u8) -> Result<Reader<'a>, Error> {
    let mut reader = Reader::new(bytes);
    if reader.take(magic.len(), "magic")? != magic {
        return Err(Error::Corrupt { what: "magic".to_owned(), offset: 0 });
    }
    let (major, minor) = (reader.u8("version")?, reader.u8("version")?);
    if major != newest {
        return Err(Error::Mismatch(format!("format version {major}.{minor}; this is version {newest}")));
    }
    let len = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|&len| len >= reader.offset());
    let missing = || Error::Truncated { what: "checksum".to_owned(), offset: bytes.len() };
    let (body, checksum) = bytes.split_at(len.ok_or_else(missing)?);
    if Reader::new(checksum).u32("checksum")? != crc32c::crc32c(body) {
        return Err(Error::Corrupt { what: "checksum".to_owned(), offset: body.len() });
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

/// A frame whose header, checksum and section table have been checked against a layout.
#[derive(Debug)]
pub struct Frame<'a> {
    header: FrameHeader,
    layout: &'a Layout,
    sections: Vec<Section<'a>>,
}

/// One tensor of a frame, and what its bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionInfo<'a> {
    /// The tensor.
    pub tensor: &'a Tensor,
    /// How it was encoded.
    pub recipe: Recipe,
    /// Bytes of the recipe and of each plane.
    pub bytes: PlaneBytes,
}

impl<'a> Frame<'a> {
    /// Checks magic, version, checksum, layout fingerprint and section table of `bytes`.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`; `Mismatch` for another version or layout.
    pub fn parse(bytes: &'a [u8], layout: &'a Layout) -> Result<Self, Error> {
        let mut reader = unseal(bytes, MAGIC, MAJOR)?;
        let header = FrameHeader::read(&mut reader, layout)?;
        let mut sections = Vec::with_capacity(layout.tensors().len());
        for tensor in layout.tensors() {
            let section = Section::read(&mut reader, tensor.len)?;
            if header.kind == FrameKind::Snapshot && !section.recipe().is_lossless() {
                return Err(reader.corrupt("snapshot that is not exact"));
            }
            sections.push(section);
        }
        reader.finish("bytes after the last section")?;
        Ok(Self { header, layout, sections })
    }

    /// The fixed part.
    pub fn header(&self) -> FrameHeader {
        self.header
    }

    /// The sections in the order of the layout.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = SectionInfo<'_>> {
        self.layout.tensors().iter().zip(&self.sections).map(|(tensor, section)| SectionInfo {
            tensor,
            recipe: section.recipe(),
            bytes: section.bytes(),
        })
    }

    /// Decodes everything into nothing: `Ok` means that [`Frame::accumulate`] cannot fail and adds only finite values.
    ///
    /// # Errors
    /// `Corrupt`, `Truncated`, `NotFinite`.
    pub fn verify(&self) -> Result<(), Error> {
        self.sections.iter().try_for_each(|section| section.decode(&mut Nothing))
    }

    /// Adds `weight` times the decoded update to `acc`. Shapes: `acc: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `acc` is unspecified. `Usage` if `acc` has another length.
    pub fn accumulate(&self, weight: f32, acc: &mut [f32]) -> Result<(), Error> {
        self.for_each_part(acc, |section, acc| section.decode(&mut Add { weight, acc }))
    }

    /// Overwrites `out` with the decoded values: those of a snapshot bit for bit, the sign of a zero included.
    /// Shapes: `out: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `out` is unspecified. `Usage` if `out` has another length.
    pub fn decode(&self, out: &mut [f32]) -> Result<(), Error> {
        self.for_each_part(out, |section, out| {
            if !section.recipe().is_lossless() {
                out.fill(0.0);
            }
            section.decode(&mut Set(out))
        })
    }

    fn for_each_part(
        &self,
        values: &mut [f32],
        mut each: impl FnMut(&Section<'a>, &mut [f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if values.len() != self.layout.len() {
            return Err(Error::Usage(format!("{} values for a layout of {}", values.len(), self.layout.len())));
        }
        let parts = self.layout.tensors().iter().map(|tensor| tensor.offset..tensor.offset + tensor.len);
        parts.zip(&self.sections).try_for_each(|(part, section)| each(section, &mut values[part]))
    }
}

struct Nothing;

impl Sink for Nothing {
    fn dense(&mut self, _: usize, _: &[f32]) {}

    fn sparse(&mut self, _: &[u32], _: &[f32]) {}
}

struct Add<'a> {
    weight: f32,
    acc: &'a mut [f32],
}

impl Sink for Add<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let acc = &mut self.acc[start..start + values.len()];
        acc.iter_mut().zip(values).for_each(|(acc, value)| *acc += self.weight * value);
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        for (&index, value) in indices.iter().zip(values) {
            self.acc[index as usize] += self.weight * value;
        }
    }
}

struct Set<'a>(&'a mut [f32]);

impl Sink for Set<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        self.0[start..start + values.len()].copy_from_slice(values);
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        for (&index, &value) in indices.iter().zip(values) {
            self.0[index as usize] = value;
        }
    }
}
