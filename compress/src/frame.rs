//! The decoder's view of one encoded update.

mod header;
mod sinks;

pub(crate) use header::OVERHEAD;
pub use header::{FrameHeader, FrameKind};

use header::{MAGIC, MAJOR};
use sinks::{Add, Largest, Set};

use crate::recipe::Recipe;
use crate::rng::Draws;
use crate::seal::unseal;
use crate::section::{PlaneBounds, PlaneBytes, Section};
use crate::{Error, Layout, Tensor};

/// A frame whose header, checksum and section table have been checked against a layout.
#[derive(Debug)]
pub struct Frame<'a> {
    header: FrameHeader,
    layout: &'a Layout,
    sections: Vec<Section<'a>>,
}

/// One tensor of a frame, and what its bytes are for.
#[derive(Debug, Clone, Copy, PartialEq)]
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
        for (at, tensor) in layout.tensors().iter().enumerate() {
            let section = Section::read(&mut reader, tensor.matrix(), Draws::new(header.seed, at))?;
            if header.kind == FrameKind::Snapshot && !section.recipe().is_lossless() {
                return Err(reader.corrupt("snapshot that is not exact"));
            }
            sections.push(section);
        }
        reader.finish("bytes after the last section")?;
        Ok(Self {
            header,
            layout,
            sections,
        })
    }

    /// The fixed part.
    pub fn header(&self) -> FrameHeader {
        self.header
    }

    /// The sections in the order of the layout.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = SectionInfo<'_>> {
        self.layout
            .tensors()
            .iter()
            .zip(&self.sections)
            .map(|(tensor, section)| SectionInfo {
                tensor,
                recipe: section.recipe(),
                bytes: section.bytes(),
            })
    }

    /// What the planes of each section could not go below, in the order of the layout. Reads all of them.
    ///
    /// # Errors
    /// `Corrupt`. A frame that [`Frame::verify`] refuses may have bounds without a meaning.
    pub fn bounds(&self) -> Result<Vec<PlaneBounds>, Error> {
        let tensors = self.layout.tensors().iter().zip(&self.sections);
        tensors.map(|(tensor, section)| section.bounds(tensor.len)).collect()
    }

    /// Decodes everything and keeps nothing but the largest magnitude: `Ok` means that [`Frame::accumulate`] cannot fail
    /// and adds no value beyond that. Needs the memory of a block of values, whatever the model.
    ///
    /// # Errors
    /// `Corrupt`, `Truncated`, `NotFinite`.
    pub fn verify(&self) -> Result<f32, Error> {
        let mut largest = Largest::default();
        self.sections
            .iter()
            .try_for_each(|section| section.decode(&mut largest))?;
        Ok(largest.value())
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
            return Err(Error::Usage(format!(
                "{} values for a layout of {}",
                values.len(),
                self.layout.len()
            )));
        }
        let parts = self
            .layout
            .tensors()
            .iter()
            .map(|tensor| tensor.offset..tensor.offset + tensor.len);
        parts
            .zip(&self.sections)
            .try_for_each(|(part, section)| each(section, &mut values[part]))
    }
}
