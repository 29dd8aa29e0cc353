//! Why a model cannot be computed.

use fl_compress::Digest;
use fl_proto::ClientId;

/// Why a model cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Rounds close in order.
    #[error("round {round} cannot follow version {version}")]
    Order {
        /// The round asked for.
        round: u64,
        /// The newest version.
        version: u64,
    },
    /// A round without examples has no aggregate.
    #[error("round {round} has no update")]
    Empty {
        /// The round.
        round: u64,
    },
    /// An accepted update cannot be read or decoded.
    #[error("the update of {client} in round {round}: {why}")]
    Frame {
        /// The round.
        round: u64,
        /// The sender.
        client: ClientId,
        /// What is wrong.
        why: String,
    },
    /// The model update that updates were encoded against cannot be read or decoded.
    #[error("the model update before round {round}, against which updates were encoded: {why}")]
    Predictor {
        /// The round.
        round: u64,
        /// What is wrong.
        why: String,
    },
    /// The model update cannot be encoded: cannot happen, one that does not fit is replaced by zeros.
    #[error("the model update of round {round} cannot be encoded: {why}")]
    Encode {
        /// The round.
        round: u64,
        /// What is wrong.
        why: String,
    },
    /// The initial model, a checkpoint or a method does not fit the plan.
    #[error("{0}")]
    Start(String),
    /// A closed round that was repeated gave another result than was recorded.
    #[error("round {round}, repeated, gives {what} {found}; recorded is {recorded}")]
    Differs {
        /// The round.
        round: u64,
        /// `frame` or `model`.
        what: &'static str,
        /// Digest found.
        found: Digest,
        /// Digest recorded.
        recorded: Digest,
    },
}
