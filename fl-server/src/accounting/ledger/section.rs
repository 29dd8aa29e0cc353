//! Bytes of a round's frames by section.

use serde::{Deserialize, Serialize};

/// `part / whole`; `None` for a whole of 0.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Direction {
    /// From clients to the server: updates.
    Up,
    /// From the server to clients: model updates.
    Down,
}

impl Direction {
    /// `up` or `down`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// One section of a round's frames: a tensor, or small tensors coded together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Index of its first tensor in the layout.
    pub first: u32,
    pub tensors: u32,
    pub parameters: u64,
    pub frames: u64,
    pub recipe: u64,
    pub indices: u64,
    pub scales: u64,
    pub values: u64,
    /// Decoded values that are not zero.
    pub nonzeros: u64,
    /// Frames in which the section has a rank.
    pub ranked: u64,
    pub ranks: u64,
}

impl Section {
    /// Its name in reports: the name of its tensor, or the number of its tensors. `name` returns a tensor's name by index.
    pub(crate) fn name<'a>(&self, name: impl Fn(usize) -> Option<&'a str>) -> String {
        match self.tensors {
            1 => name(self.first as usize).unwrap_or_default().to_owned(),
            several => format!("{several} small tensors"),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        let parts = [self.recipe, self.indices, self.scales, self.values];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Values of its frames, zeros included.
    pub(crate) fn coded(&self) -> u64 {
        self.parameters.saturating_mul(self.frames)
    }

    /// Share of its values that are not zero; `None` without a frame.
    pub(crate) fn density(&self) -> Option<f64> {
        share(self.nonzeros, self.coded())
    }

    /// Bits of its frames for each of its values; `None` without a frame.
    pub(crate) fn bits(&self) -> Option<f64> {
        share(self.bytes().saturating_mul(8), self.coded())
    }

    /// Mean rank, of the frames in which the section has one.
    pub(crate) fn mean_rank(&self) -> Option<f64> {
        share(self.ranks, self.ranked)
    }

    pub fn add(&mut self, other: &Self) {
        for (own, more) in [
            (&mut self.frames, other.frames),
            (&mut self.recipe, other.recipe),
            (&mut self.indices, other.indices),
            (&mut self.scales, other.scales),
            (&mut self.values, other.values),
            (&mut self.nonzeros, other.nonzeros),
            (&mut self.ranked, other.ranked),
            (&mut self.ranks, other.ranks),
        ] {
            *own = own.saturating_add(more);
        }
    }
}
