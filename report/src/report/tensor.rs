//! What a report says of one section of frames: a tensor, or small tensors that are coded together.

use crate::table::line::line;
use crate::table::sums::sums;

sums! {
    /// Frames of one section, and their bytes by part.
    #[derive(Copy)]
    pub struct SectionBytes {
        /// Frames whose bytes are added up in this line.
        frames: u64 [""],
        /// Bytes of recipes.
        recipe_bytes: u64 ["B"],
        /// Bytes of indices.
        index_bytes: u64 ["B"],
        /// Bytes of scales.
        scale_bytes: u64 ["B"],
        /// Bytes of values.
        value_bytes: u64 ["B"],
        /// All bytes of the section.
        bytes: u64 ["B"],
    }
}

line! {
    /// What compression did to the values of one section.
    #[derive(Copy)]
    pub struct Fidelity {
        /// Frames that came with the figures in the next columns. The figures of updates are claims of their clients.
        figures: u64 [""],
        /// Cosine between the decoded update and the update before compression, mean over frames: 1 if they are parallel.
        cosine: Option<f64> [""],
        /// The smallest cosine of a frame.
        cosine_least: Option<f64> [""],
        /// Share of the encoded energy (residual included) that the frame kept, mean over frames: 1 if exact, below 0 if worse than sending nothing.
        kept: Option<f64> [""],
        /// The smallest share of a frame.
        kept_least: Option<f64> [""],
        /// Age of the residual, mean over frames: updates of the sender since the last accepted one with a nonzero value.
        age: Option<f64> [""],
        /// The greatest age of a frame.
        age_most: Option<f64> [""],
    }
}

line! {
    /// One section of the frames of one round and direction.
    pub struct TensorLine {
        /// The round.
        round: u64 [""],
        /// `up` for the updates, `down` for the model update.
        direction: String [""],
        /// The tensor's name; of tensors coded together, their number.
        tensor: String [""],
        /// Parameters of the section.
        parameters: u64 [""],
        /// Bytes by part.
        section: SectionBytes [],
        /// Share of nonzero parameters.
        density: Option<f64> [""],
        /// Mean rank, if the section was sent as factors or with components split off.
        rank: Option<f64> [""],
        /// Bits per parameter.
        bits: Option<f64> ["bit"],
        /// Fidelity of the frames.
        fidelity: Fidelity [],
    }
}
