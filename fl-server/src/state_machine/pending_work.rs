//! What a phase leaves to do outside the state machine.

use fl_compress::Digest;
use fl_proto::ClientId;

/// One update's part in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// Whose.
    pub client: ClientId,
    /// Its weight.
    pub examples: u64,
    /// Digest of its frame.
    pub frame: Digest,
}

/// What an interrupted phase still has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingWork {
    /// Aggregate these updates and say [`Input::Stepped`](super::Input::Stepped).
    Close {
        /// The round.
        round: u64,
        /// Its updates, by client name.
        updates: Vec<Contribution>,
        /// Whether the plan's limits apply to them.
        limited: bool,
    },
}
