//! The tables of a report: what one line of each says.

use crate::columns::line;
use crate::flow::Flow;

line! {
    /// One round.
    pub struct RoundLine {
        /// The round; its model is the version of the same number.
        round: u64 [""],
        /// Whether its model is ready.
        closed: bool [""],
        /// Times it was opened.
        attempts: u64 [""],
        /// Clients asked at its last opening.
        asked: u64 [""],
        /// Updates counted.
        updates: u64 [""],
        /// Examples behind them.
        examples: u64 [""],
        /// Mean training loss, by examples.
        loss: Option<f64> [""],
        /// Share of held-out examples that the round's model classifies correctly.
        accuracy: Option<f64> [""],
        /// Mean loss of the round's model over them.
        evaluation_loss: Option<f64> [""],
        /// Held-out examples.
        evaluated: u64 [""],
        /// When it was first opened, since 1970.
        opened_ms: u64 ["ms"],
        /// From its opening to its model.
        seconds: f64 ["s"],
        /// From its last update to its model.
        aggregate_seconds: f64 ["s"],
        /// Training, as its clients say, added up.
        train_seconds: f64 ["s"],
        /// Encoding, as its clients say, added up.
        encode_seconds: f64 ["s"],
        /// From a client's update to the round's model, added up.
        wait_seconds: f64 ["s"],
        /// From the opening until half of the updates were there.
        finish_median: Option<f64> ["s"],
        /// From the opening until the last update was there.
        finish_last: Option<f64> ["s"],
        /// Updates at four bytes a value.
        fp32_up: u64 ["B"],
        /// After reduce.
        reduced_up: u64 ["B"],
        /// After quantize.
        quantized_up: u64 ["B"],
        /// After code.
        coded_up: u64 ["B"],
        /// As frames.
        framed_up: u64 ["B"],
        /// Order-0 entropy of the updates: only coding by context may go below.
        bound_up: f64 ["B"],
        /// The step at four bytes a value.
        fp32_down: u64 ["B"],
        /// After reduce.
        reduced_down: u64 ["B"],
        /// After quantize.
        quantized_down: u64 ["B"],
        /// After code.
        coded_down: u64 ["B"],
        /// As a frame.
        framed_down: u64 ["B"],
        /// Order-0 entropy of the step: only coding by context may go below.
        bound_down: f64 ["B"],
        /// Bits of frame for each parameter of a mean update.
        bits_up: Option<f64> ["bit"],
        /// Bits of frame for each parameter of the step.
        bits_down: Option<f64> ["bit"],
        /// Share of the updates' parameters that are not zero.
        density_up: Option<f64> [""],
        /// Share of the step's parameters that are not zero.
        density_down: Option<f64> [""],
        /// Bytes read from all sockets while it was open, counted apart from its clients' rows.
        metered_up: u64 ["B"],
        /// Bytes written to them.
        metered_down: u64 ["B"],
        /// Whether its clients' rows are equal to that, to the byte.
        balanced: bool [""],
        /// Bytes of frames that were counted but stand in no row: what was on the sockets before a server was killed.
        unbooked: u64 ["B"],
        /// Digest of its model.
        model: String [""],
        /// Digest of its step's frame.
        frame: String [""],
        /// Digest of all records and ledger rows up to its end, the link before included.
        link: String [""],
        ..flow: Flow
    }
}

line! {
    /// One client.
    pub struct ClientLine {
        /// Its name; `-` stands for connections that never said who they were.
        client: String [""],
        /// Rounds for which it was asked.
        asked: u64 [""],
        /// Updates counted.
        updates: u64 [""],
        /// Examples behind them.
        examples: u64 [""],
        /// Training, as it says.
        train_seconds: f64 ["s"],
        /// Encoding, as it says.
        encode_seconds: f64 ["s"],
        /// From its updates to the rounds' models.
        wait_seconds: f64 ["s"],
        /// From a round's opening to its update, on average.
        finish_mean: Option<f64> ["s"],
        /// Frames of its updates.
        framed: u64 ["B"],
        ..flow: Flow
    }
}

line! {
    /// One client in one round.
    pub struct Participation {
        /// The round.
        round: u64 [""],
        /// The client; `-` stands for connections that never said who they were.
        client: String [""],
        /// Whether it was asked for an update.
        asked: bool [""],
        /// Whether its update counts.
        updated: bool [""],
        /// Examples behind it.
        examples: u64 [""],
        /// Mean training loss.
        loss: Option<f64> [""],
        /// From the round's opening to its update.
        finish_seconds: Option<f64> ["s"],
        /// Training, as it says.
        train_seconds: f64 ["s"],
        /// Encoding, as it says.
        encode_seconds: f64 ["s"],
        /// From its update to the round's model.
        wait_seconds: f64 ["s"],
        /// The update at four bytes a value.
        fp32: u64 ["B"],
        /// After reduce.
        reduced: u64 ["B"],
        /// After quantize.
        quantized: u64 ["B"],
        /// After code.
        coded: u64 ["B"],
        /// As a frame.
        framed: u64 ["B"],
        /// Its order-0 entropy: only coding by context may go below.
        bound: f64 ["B"],
        ..flow: Flow
    }
}

line! {
    /// One section of the frames of one round and direction: a tensor, or small tensors coded together.
    pub struct TensorLine {
        /// The round.
        round: u64 [""],
        /// `up` for the updates, `down` for the step.
        direction: String [""],
        /// The tensor's name; of several, their number.
        tensor: String [""],
        /// Its parameters.
        parameters: u64 [""],
        /// Frames that are added up here.
        frames: u64 [""],
        /// Bytes of recipes.
        recipe_bytes: u64 ["B"],
        /// Bytes of indices.
        index_bytes: u64 ["B"],
        /// Bytes of scales.
        scale_bytes: u64 ["B"],
        /// Bytes of values.
        value_bytes: u64 ["B"],
        /// All of its bytes.
        bytes: u64 ["B"],
        /// Share of its parameters that are not zero.
        density: Option<f64> [""],
        /// Mean rank, where it was sent as factors, or with components apart.
        rank: Option<f64> [""],
        /// Bits for each parameter.
        bits: Option<f64> ["bit"],
        /// Frames that came with the figures that follow. Those of updates are their clients' claims.
        figures: u64 [""],
        /// Cosine of what the receiver adds and the update before compression, on average: 1 if they point the same way.
        cosine: Option<f64> [""],
        /// The least of them.
        cosine_least: Option<f64> [""],
        /// Share of the energy encoded (residual included) that was kept, on average: 1 if exact, below 0 if worse than nothing.
        kept: Option<f64> [""],
        /// The least of them.
        kept_least: Option<f64> [""],
        /// Age of the residual, in updates of its sender since one with a value that is not zero was taken, on average.
        age: Option<f64> [""],
        /// The oldest of them.
        age_most: Option<f64> [""],
    }
}
