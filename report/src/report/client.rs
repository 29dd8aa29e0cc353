//! What a report says of one client.

use crate::report::flow::Flow;
use crate::table::line::line;

line! {
    /// One client, over all rounds.
    pub struct ClientLine {
        /// The client's name; `-` for connections that showed no certificate.
        client: String [""],
        /// Rounds in whose cohort the client was.
        asked: u64 [""],
        /// Accepted updates.
        updates: u64 [""],
        /// Examples that these updates were trained on.
        examples: u64 [""],
        /// The model version of its latest evaluation.
        evaluated_version: u64 [""],
        /// Share of its held-out examples that this version classifies correctly, if the client's model classifies.
        accuracy: Option<f64> [""],
        /// Mean loss of this version on them.
        evaluation_loss: Option<f64> [""],
        /// Training time, as the client reports it.
        train_seconds: f64 ["s"],
        /// Encoding time, as the client reports it.
        encode_seconds: f64 ["s"],
        /// Time from the client's updates to the rounds' models.
        wait_seconds: f64 ["s"],
        /// Mean time from a round's first attempt to the client's update.
        finish_mean: Option<f64> ["s"],
        /// Bytes of the frames of its updates.
        framed: u64 ["B"],
        /// What the bytes were for.
        flow: Flow [],
    }
}
