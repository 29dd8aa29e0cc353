//! What a source says of its condition.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Fulfilled, and what was read.
    Holds(String),
    /// Not fulfilled, and why.
    Fails(String),
    /// Not fulfilled before a time in seconds since 1970, and why.
    FailsUntil(u64, String),
    /// The source cannot be read, and why.
    Missing(String),
}

impl Reading {
    /// [`Self::Holds`] or [`Self::Fails`] with this text.
    pub(super) fn of(holds: bool, text: String) -> Self {
        if holds { Self::Holds(text) } else { Self::Fails(text) }
    }
}
