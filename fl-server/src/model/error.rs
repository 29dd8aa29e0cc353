//! Why a model cannot be computed.

use fl_compress::Digest;
use fl_proto::ClientId;

/// The model cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Rounds close in order.
    #[error("round {round} cannot follow version {version}")]
    Order {
        /// The round asked for.
        round: u64,
        /// The version that is there.
        version: u64,
    },
    /// A round without examples has no average.
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
        /// Whose.
        client: ClientId,
        /// What is wrong.
        why: String,
    },
    /// The step that updates were encoded against cannot be read or decoded.
    #[error("the step before round {round}, against which updates were encoded: {why}")]
    Predictor {
        /// The round.
        round: u64,
        /// What is wrong.
        why: String,
    },
    /// The step cannot be encoded: cannot happen, a step that does not fit is replaced by one of zeros.
    #[error("the step of round {round}: {why}")]
    Step {
        /// The round.
        round: u64,
        /// What is wrong.
        why: String,
    },
    /// The initial model or a checkpoint does not fit.
    #[error("{0}")]
    Start(String),
    /// Doing a closed round again gave something else than was recorded.
    #[error("round {round} done again gives {what} {found}, recorded is {recorded}")]
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
