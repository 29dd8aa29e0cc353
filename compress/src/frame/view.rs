//! The decoder's view of one encoded update. Its values are read in [`super::values`].

use std::sync::Arc;

use crate::digest::Digest;
use crate::error::Error;
use crate::frame::groups::{TensorGroup, tensor_groups};
use crate::frame::header::{Extras, FrameHeader, FrameKind, MAGIC, VERSION};
use crate::layout::{Layout, Tensor};
use crate::quantize::method::KnownPlane;
use crate::recipe::Recipe;
use crate::rng::KeyedRng;
use crate::rounded::ModelRounding;
use crate::section::decode::Section;
use crate::section::planes::{PlaneBounds, PlaneBytes};
use crate::wire::unseal;

/// A frame with header, checksum and section table checked against a layout.
#[derive(Debug)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    header: FrameHeader,
    extras: Extras,
    pub(super) layout: &'a Layout,
    pub(super) sections: Vec<(TensorGroup, Section<'a>)>,
}

/// One section of a frame and its size by purpose.
#[derive(Debug, Clone, PartialEq)]
pub struct SectionInfo<'a> {
    /// The tensor of the section, or the tensors merged into it: small trained tensors, all buffers, or all counters.
    pub tensors: Vec<&'a Tensor>,
    /// Indices of the tensors in the layout.
    pub places: &'a [usize],
    /// The recipe of the encoder.
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
        let mut reader = unseal(bytes, MAGIC, VERSION)?;
        let (header, extras, count) = FrameHeader::read(&mut reader, layout)?;
        let units = tensor_groups(layout, extras.merge_below as usize);
        if count != units.len() {
            return Err(reader.corrupt("number of sections"));
        }
        let mut sections = Vec::with_capacity(count);
        for (at, unit) in units.into_iter().enumerate() {
            let section = Section::read(&mut reader, unit.shape, KeyedRng::new(header.seed, at))?;
            let recipe = section.recipe();
            if header.kind == FrameKind::Snapshot && !recipe.is_lossless() && !recipe.is_multiples() {
                return Err(reader.corrupt("snapshot with a lossy section"));
            }
            sections.push((unit, section));
        }
        reader.finish("bytes after the last section")?;
        Ok(Self {
            bytes,
            header,
            extras,
            layout,
            sections,
        })
    }

    /// The frame, of which its encoder knows what the parts of each section decode to. Nothing else changes.
    pub(crate) fn knowing(mut self, known: Vec<Vec<Option<Arc<dyn KnownPlane>>>>) -> Self {
        for ((_, section), known) in self.sections.iter_mut().zip(known) {
            section.know(known);
        }
        self
    }

    /// Short digest of the frame whose trained values the receiver adds to this one, if the encoder used that frame as
    /// its predictor (see [`crate::Memory::Cafe`] and [`Frame::accumulate_trained`]).
    pub fn predictor(&self) -> Option<u64> {
        self.extras.predictor
    }

    /// How the model is rounded to which this model update was added, if it is (see [`Frame::apply`]).
    pub fn rounding(&self) -> Option<ModelRounding> {
        self.extras.rounding
    }

    /// Makes the version of the model that this frame is for: a snapshot replaces `model`; a model update is added to it, and
    /// the sum is rounded if the frame says so. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::accumulate`]; `Mismatch` if the frame is a client's update.
    pub fn apply(&self, model: &mut [f32]) -> Result<(), Error> {
        match self.header.kind {
            FrameKind::Snapshot => self.decode(model),
            FrameKind::ModelUpdate => {
                self.accumulate(1.0, model)?;
                if let Some(rounding) = self.extras.rounding {
                    rounding.round(self.layout, model);
                }
                Ok(())
            }
            FrameKind::Update => Err(Error::Mismatch(
                "a client's update makes no version of a model".to_owned(),
            )),
        }
    }

    /// Short digest of the frame, by which another frame refers to it as its predictor.
    pub fn id(&self) -> u64 {
        Digest::of(self.bytes).short()
    }

    /// Bytes of the frame.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Values that are coded: those of all values that the codec keeps. Decoding takes in proportion to them.
    pub fn coded_values(&self) -> usize {
        self.sections.iter().map(|(_, section)| section.coded_values()).sum()
    }

    /// The layout that it was checked against.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The header.
    pub fn header(&self) -> FrameHeader {
        self.header
    }

    /// The sections: first the merged small trained tensors, if there are any, then the other trained tensors in the
    /// order of the layout, then all buffers, then all counters.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = SectionInfo<'_>> {
        self.sections.iter().map(|(unit, section)| SectionInfo {
            tensors: unit.tensors.iter().map(|&at| &self.layout.tensors()[at]).collect(),
            places: &unit.tensors,
            recipe: section.recipe(),
            bytes: section.bytes(),
        })
    }

    /// Lower bound of the size of each plane of each section, in the order of [`Frame::sections`]. Decodes all planes.
    ///
    /// # Errors
    /// `Corrupt`. The bounds of a frame that [`Frame::verify`] refuses are meaningless.
    pub fn bounds(&self) -> Result<Vec<PlaneBounds>, Error> {
        self.sections.iter().map(|(_, section)| section.bounds()).collect()
    }

    /// For each section, the indices of its tensors in the layout.
    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.sections.iter().map(|(unit, _)| unit.tensors.as_slice())
    }
}
