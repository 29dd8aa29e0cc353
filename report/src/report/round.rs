//! What a report says of one round.

use crate::report::flow::Flow;
use crate::report::measures::Measures;
use crate::report::stages::StageBytes;
use crate::table::line::line;

line! {
    /// One round.
    pub struct RoundLine {
        /// The number of the round, and of the model version that it makes.
        round: u64 [""],
        /// Whether the round has closed and its model is ready.
        closed: bool [""],
        /// Number of attempts: how often the round was opened.
        attempts: u64 [""],
        /// Clients in the cohort of the last attempt.
        asked: u64 [""],
        /// Updates in the round's model.
        updates: u64 [""],
        /// Examples that these updates were trained on.
        examples: u64 [""],
        /// Updates and losses of which less than half counts, because of `[limits]` of run.toml or of the others' losses.
        limited: u64 [""],
        /// Mean training loss, weighted by examples.
        loss: Option<f64> [""],
        /// Share of held-out examples that the round's model classifies correctly, of the clients whose model classifies.
        accuracy: Option<f64> [""],
        /// The exponential of `evaluation_loss`, if the model of some client is a language model.
        perplexity: Option<f64> [""],
        /// Mean loss of the round's model on the held-out examples.
        evaluation_loss: Option<f64> [""],
        /// Held-out examples.
        evaluated: u64 [""],
        /// Time of the first attempt, since 1970.
        opened_ms: u64 ["ms"],
        /// Time from the first attempt to the round's model.
        seconds: f64 ["s"],
        /// Time from the last update to the round's model.
        aggregate_seconds: f64 ["s"],
        /// Training time, as the clients report it; sum over the updates.
        train_seconds: f64 ["s"],
        /// Encoding time, as the clients report it; sum over the updates.
        encode_seconds: f64 ["s"],
        /// Time from each update to the round's model; sum over the updates.
        wait_seconds: f64 ["s"],
        /// Time from the first attempt until half of the updates had arrived.
        finish_median: Option<f64> ["s"],
        /// Time from the first attempt until the last update had arrived.
        finish_last: Option<f64> ["s"],
        /// Stages of the updates.
        up: StageBytes [Up],
        /// Stages of the model update.
        down: StageBytes [Down],
        /// Bits of frame per parameter, mean over the updates.
        bits_up: Option<f64> ["bit"],
        /// Bits of frame per parameter of the model update.
        bits_down: Option<f64> ["bit"],
        /// Share of nonzero parameters in the updates.
        density_up: Option<f64> [""],
        /// Share of nonzero parameters in the model update.
        density_down: Option<f64> [""],
        /// Bytes read from all sockets during the round, counted by the meter and not by client.
        metered_up: u64 ["B"],
        /// Bytes written to all sockets during the round, counted by the meter and not by client.
        metered_down: u64 ["B"],
        /// Whether the bytes booked to clients equal the meter's, to the byte.
        balanced: bool [""],
        /// Bytes of accepted frames that are booked to no client: traffic before a server was killed.
        unbooked: u64 ["B"],
        /// Digest of the round's model.
        model: String [""],
        /// Digest of the frame of the model update.
        frame: String [""],
        /// Entry of the hash chain: digest of all records and ledger rows up to the end of the round, and of the entry before.
        link: String [""],
        /// What the bytes were for.
        flow: Flow [],
        /// A metric of the training: mean over the clients that report it, with their weights.
        trained as "train": Measures [""],
        /// A metric of the round's model on held-out examples: mean over the clients that report it, with their weights.
        measured as "evaluation": Measures [""],
    }
}
