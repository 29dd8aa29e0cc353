//! Which run a report describes, and what other ways of training would have sent.

use serde::{Deserialize, Serialize};

/// The run and its state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run.
    pub name: String,
    /// Name of its task.
    pub task: String,
    /// `waiting`, `round N`, `done` or `failed in round N: why`.
    pub state: String,
    /// Planned rounds.
    pub planned: u64,
    /// Parameters of the model: with `train.space`, more than travel.
    pub parameters: u64,
    /// Newest model version.
    pub version: u64,
    /// Digest of the newest model version.
    pub model: String,
    /// Identifier of this run among runs of the same name.
    pub instance: String,
    /// Time of the first record, in milliseconds since 1970; 0 if there is none.
    pub opened_ms: u64,
    /// Time of the newest record, in milliseconds since 1970.
    pub until_ms: u64,
    /// Newest entry of the hash chain of rounds; empty if there is none.
    pub chain: String,
}

/// What another way of training would have sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// `fedavg-fp32`, `fedavg-fp16`, or with `train.space` also `space-fp32`: the values of its z in fp32.
    pub name: String,
    /// The newest round that the baseline counts, 0 for none. A round counts once its model has reached the clients: when the
    /// next round has closed, and the last round when the run is done. For each client that is still connected then, one model
    /// is left out until the client disconnects.
    pub through: u64,
    /// Bytes up: all values of each update in these rounds.
    pub up: u64,
    /// Bytes down: all values for each client asked in these rounds, and for each that evaluated the last model.
    pub down: u64,
    /// The baseline's bytes over the bytes of all frames. Frames of rounds after `through` count too, so the ratio of an
    /// unfinished run is too low rather than too high.
    pub frames_ratio: f64,
    /// The baseline's bytes over all bytes on the sockets, with the same caveat.
    pub socket_ratio: f64,
}
