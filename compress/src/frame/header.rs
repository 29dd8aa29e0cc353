//! The fixed part of a frame.

use crate::seal::CHECKSUM_BYTES;
use crate::wire::{Reader, Writer};
use crate::{Error, Layout};

pub(super) const MAGIC: &[u8; 4] = b"FLCF";
pub(super) const MAJOR: u8 = 1;
const MINOR: u8 = 0;
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

    pub(super) fn read(reader: &mut Reader<'_>, layout: &Layout) -> Result<Self, Error> {
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
        let header = Self {
            kind,
            round: reader.u64("round")?,
            seed: reader.u64("seed")?,
        };
        if usize::from(reader.u16("number of sections")?) != layout.tensors().len() {
            return Err(reader.corrupt("number of sections"));
        }
        Ok(header)
    }
}
