//! What a report says of one client in one round.

use crate::report::flow::Flow;
use crate::report::measures::Measures;
use crate::report::stages::StageBytes;
use crate::table::line::line;

line! {
    /// One client in one round.
    pub struct Participation {
        /// The round.
        round: u64 [""],
        /// The client's name; `-` for connections that showed no certificate.
        client: String [""],
        /// Whether the client was in the cohort.
        asked: bool [""],
        /// Whether the client's update was accepted.
        updated: bool [""],
        /// Examples that the update was trained on.
        examples: u64 [""],
        /// Share of the update that does not count in the round's model, because of `[limits]` of run.toml.
        left_out: f64 [""],
        /// Mean training loss.
        loss: Option<f64> [""],
        /// Time from the round's first attempt to the update.
        finish_seconds: Option<f64> ["s"],
        /// Training time, as the client reports it.
        train_seconds: f64 ["s"],
        /// Encoding time, as the client reports it.
        encode_seconds: f64 ["s"],
        /// Time from the update to the round's model.
        wait_seconds: f64 ["s"],
        /// Stages of the update.
        stages: StageBytes [],
        /// What the bytes were for.
        flow: Flow [],
        /// A metric of the training, as the client reports it.
        trained as "train": Measures [""],
    }
}
