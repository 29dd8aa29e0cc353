//! One cost of a run, and how to reduce it.

use crate::table::line::line;

line! {
    /// One cost of a run. All costs add up to the bytes on the sockets.
    pub struct Saving {
        /// Name of the cost: `updates`, `limited updates`, `model updates`, `whole models`, `useless frames`, `connections`, `messages`.
        cost: String [""],
        /// Bytes.
        bytes: u64 ["B"],
        /// Share of all bytes on the sockets.
        share: Option<f64> [""],
        /// The cause of the cost, as a sentence.
        why: String [""],
        /// How to reduce the cost, as a sentence.
        change: String [""],
    }
}
