//! The fidelity of the newest frames, by tensor.

use crate::accounting::ledger::{Direction, Fidelity};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorGauge {
    pub(crate) direction: Direction,
    /// Name of the tensor, or the number of small tensors in the section.
    pub(crate) tensor: String,
    /// Share of the values that are not zero.
    pub(crate) density: f64,
    /// Bits of the section's frames for each of its parameters.
    pub(crate) bits: f64,
    /// Mean rank, of the frames in which the section has one.
    pub(crate) rank: Option<f64>,
    /// Entropy of the energy in nats: of the aggregate of the updates, or of the model update.
    pub(crate) entropy: Option<f64>,
    /// Sums over the frames that carried figures.
    pub(crate) fidelity: Option<Fidelity>,
    /// Rounds in a row, up to this, in which the section was starved.
    pub(crate) starved: u32,
}

impl TensorGauge {
    pub(crate) fn cosine(&self) -> Option<f64> {
        self.fidelity?.mean_cosine()
    }
}
