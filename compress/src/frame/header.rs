//! The header of a frame.

use crate::error::Error;
use crate::layout::Layout;
use crate::rounded::ModelRounding;
use crate::wire::{CHECKSUM_BYTES, Reader, Writer};

pub(crate) const MAGIC: &[u8; 4] = b"FLCF";
// Major and minor (docs/reference/format.md): a reader refuses another major version.
pub(crate) const VERSION: [u8; 2] = [1, 0];
// Bytes of a frame without its sections and without optional fields: fixed by the format (docs/reference/format.md).
pub(crate) const OVERHEAD: usize = 34 + CHECKSUM_BYTES;
// Bits 0 to 2 and 7 of the flags (docs/reference/format.md).
const MERGES: u8 = 1;
const HAS_PREDICTOR: u8 = 2;
const ROUNDS: u8 = 4;
// Fields of a newer minor version that a reader may skip.
const HAS_MORE: u8 = 128;

/// The meaning of the values of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A client's update: local model minus the model it started from.
    Update,
    /// The server's model update: added to a model of the previous version.
    ModelUpdate,
    /// A whole model, exact.
    Snapshot,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The meaning of the values.
    pub kind: FrameKind,
    /// Update: the round that it belongs to. Model update and snapshot: the resulting model version.
    pub round: u64,
    /// Seed of every random choice of the encoder.
    pub seed: u64,
}

/// The optional fields of the header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Trained tensors with fewer values are merged into the first section; 0: no trained tensor is merged.
    pub(crate) merge_below: u32,
    /// Short digest of the frame whose trained values the receiver adds to this frame.
    pub(crate) predictor: Option<u64>,
    /// How the receiver rounds the model to which it added this model update.
    pub(crate) rounding: Option<ModelRounding>,
}

impl FrameHeader {
    /// Appends everything before the first section.
    pub(crate) fn write(&self, layout: &Layout, sections: usize, extras: Extras, out: &mut Vec<u8>) {
        let merges = if extras.merge_below > 0 { MERGES } else { 0 };
        let flags = merges | extras.predictor.map_or(0, |_| HAS_PREDICTOR) | extras.rounding.map_or(0, |_| ROUNDS);
        let mut out = Writer::new(out);
        out.head(MAGIC, VERSION);
        out.u8(match self.kind {
            FrameKind::Update => 0,
            FrameKind::ModelUpdate => 1,
            FrameKind::Snapshot => 2,
        });
        out.u8(flags);
        out.u64(layout.fingerprint());
        out.u64(self.round);
        out.u64(self.seed);
        out.u16(sections as u16);
        if extras.merge_below > 0 {
            out.varint(extras.merge_below.into());
        }
        if let Some(predictor) = extras.predictor {
            out.u64(predictor);
        }
        if let Some(rounding) = extras.rounding {
            out.u8(rounding.bits());
        }
    }

    /// Reads everything before the first section; also returns the number of sections.
    pub(crate) fn read(reader: &mut Reader<'_>, layout: &Layout) -> Result<(Self, Extras, usize), Error> {
        let kind = match reader.u8("kind")? {
            0 => FrameKind::Update,
            1 => FrameKind::ModelUpdate,
            2 => FrameKind::Snapshot,
            _ => return Err(reader.corrupt("kind")),
        };
        let flags = reader.u8("flags")?;
        let allowed = match kind {
            FrameKind::Update => MERGES | HAS_PREDICTOR,
            FrameKind::ModelUpdate => MERGES | HAS_PREDICTOR | ROUNDS,
            FrameKind::Snapshot => 0,
        };
        let allowed = allowed | if reader.is_newer() { HAS_MORE } else { 0 };
        if flags & !allowed != 0 {
            return Err(reader.corrupt("flags"));
        }
        if reader.u64("layout fingerprint")? != layout.fingerprint() {
            return Err(Error::Mismatch("the frame belongs to another layout".to_owned()));
        }
        let header = Self {
            kind,
            round: reader.u64("round")?,
            seed: reader.u64("seed")?,
        };
        let sections = usize::from(reader.u16("number of sections")?);
        let mut extras = Extras::default();
        if flags & MERGES != 0 {
            let merge_below = reader.varint("limit of small tensors")?;
            let merge_below = u32::try_from(merge_below).ok().filter(|&merge_below| merge_below > 0);
            extras.merge_below = merge_below.ok_or_else(|| reader.corrupt("limit of small tensors"))?;
        }
        if flags & HAS_PREDICTOR != 0 {
            extras.predictor = Some(reader.u64("predictor")?);
        }
        if flags & ROUNDS != 0 {
            let bits = reader.u8("bits of a rounded model")?;
            let rounding = ModelRounding::try_from(bits);
            extras.rounding = Some(rounding.map_err(|_| reader.corrupt("bits of a rounded model"))?);
        }
        if flags & HAS_MORE != 0 {
            let len = reader.varint("length of further fields")?;
            reader.take(usize::try_from(len).unwrap_or(usize::MAX), "further fields")?;
        }
        Ok((header, extras, sections))
    }
}
