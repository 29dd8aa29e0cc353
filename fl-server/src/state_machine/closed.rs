//! A closed round, in numbers.

use fl_compress::{Digest, Stages};

use crate::clock::Millis;

/// How a model version came to be: a closed round, in numbers; or a rollback, which has no updates and no frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// Rounds behind the model, without those that were taken back.
    pub depth: u64,
    /// Of a rollback: the version whose model it is.
    pub base: Option<u64>,
    /// The round, and the version of the model that it made.
    pub round: u64,
    /// Attempts that it took.
    pub attempts: u32,
    /// Clients asked.
    pub asked: u32,
    /// Clients that answered.
    pub answered: u32,
    /// Examples of all updates.
    pub examples: u64,
    /// Training loss, the mean over the examples.
    pub loss: f64,
    /// Bytes of all updates' frames.
    pub up: u64,
    /// Digest of the step's frame.
    pub frame: Digest,
    /// Its bytes.
    pub frame_len: u64,
    /// Its bytes after each stage.
    pub stages: Stages,
    /// Digest of the new model.
    pub model: Digest,
    /// When the round opened.
    pub opened: Millis,
    /// When it closed.
    pub closed: Millis,
}
