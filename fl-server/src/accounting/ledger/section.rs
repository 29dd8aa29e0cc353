//! Bytes of a round's frames by section.

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Section {
    /// Index of its first tensor in the layout.
    pub first: u32,
    pub tensors: u32,
    /// Parameters of these tensors.
    pub parameters: u64,
    /// Frames summed.
    pub frames: u64,
    pub recipe: u64,
    pub indices: u64,
    pub scales: u64,
    pub values: u64,
    /// Decoded values that are not zero.
    pub nonzeros: u64,
    /// Frames in which the section has a rank.
    pub ranked: u64,
    /// Sum of these ranks.
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

    /// Bytes of its frames.
    pub(crate) fn bytes(&self) -> u64 {
        let parts = [self.recipe, self.indices, self.scales, self.values];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Adds the same section of other frames.
    pub fn add(&mut self, other: &Self) {
        let mut other = *other;
        let sums = self.sums_mut().into_iter().zip(other.sums_mut());
        sums.for_each(|(own, more)| *own = own.saturating_add(*more));
    }

    /// The numbers that add up, in the order of a ledger row.
    pub(super) fn sums_mut(&mut self) -> [&mut u64; 8] {
        [
            &mut self.frames,
            &mut self.recipe,
            &mut self.indices,
            &mut self.scales,
            &mut self.values,
            &mut self.nonzeros,
            &mut self.ranked,
            &mut self.ranks,
        ]
    }
}
