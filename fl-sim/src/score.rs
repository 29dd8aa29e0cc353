//! The result of a run: a line per round, totals, and what fp32 federated averaging would have sent.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fl_server::{Event, ModelEvaluation};
use serde::{Deserialize, Serialize};

use crate::json;

/// One round of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundLine {
    /// The round, from 1.
    pub round: u64,
    /// Updates that were averaged.
    pub updates: u64,
    /// Test accuracy of the round's model, 0 to 1, over the examples of the clients that evaluated it.
    pub accuracy: Option<f64>,
    /// The exponential of the test loss, if the model of some client does not classify.
    pub perplexity: Option<f64>,
    /// Mean test loss of the round's model.
    pub test_loss: Option<f64>,
    /// Mean training loss of the updates, weighted by examples.
    #[serde(deserialize_with = "json::number")]
    pub train_loss: f64,
    /// Bytes on the sockets from and to the clients: frames, messages, HTTP/2 and TLS.
    pub up: u64,
    /// Downlink, as `up`.
    pub down: u64,
    /// Bytes of frames alone, from and to the clients.
    pub frames_up: u64,
    /// Downlink, as `frames_up`.
    pub frames_down: u64,
    /// Wall-clock seconds from the round's opening to its close.
    pub seconds: f64,
    /// Seconds from the arrival of the round's first update to that of its last, on the virtual clock; `None` if real sockets
    /// carried them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Metrics of the learners, averaged over the clients: `train/NAME` and `evaluation/NAME`.
    #[serde(deserialize_with = "json::numbers")]
    pub metrics: BTreeMap<String, f64>,
}

/// The metric of models that predict numbers.
const RMSE: &str = "evaluation/rmse";

/// Most bytes that one side writes to close a connection: a few small HTTP/2 frames and a TLS alert, each in its own record.
const MAX_CLOSING: u64 = 256;

/// A finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// Values of the model.
    pub parameters: u64,
    /// Clients of the federation.
    pub clients: u64,
    /// The rounds, in order.
    pub rounds: Vec<RoundLine>,
    /// Bytes read and written by the server's sockets over the whole run, including handshakes, joining and leaving.
    pub server_socket: (u64, u64),
    /// Bytes written and read by the clients' sockets over the whole run.
    pub client_socket: (u64, u64),
    /// Sum of the ledger's rows in the same two directions.
    pub ledger: (u64, u64),
    /// Digest of the last model.
    pub model: String,
    /// Seconds that the rounds would take over given links; empty if real sockets carried the messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<LinkTime>,
}

/// Seconds of a run in which every client has this link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTime {
    /// Megabits a second in each direction.
    pub mbit: f64,
    /// Milliseconds of one way.
    pub latency_ms: f64,
    /// From the opening of the first round to the close of the last.
    pub seconds: f64,
}

impl Score {
    /// Seconds of all rounds on the virtual clock; `None` if real sockets carried the messages.
    pub fn virtual_seconds(&self) -> Option<f64> {
        (!self.times.is_empty()).then(|| self.rounds.iter().map(|round| round.seconds).sum())
    }

    /// Mean over the rounds of the seconds between the first update and the last; `None` as of `virtual_seconds`.
    pub fn spread(&self) -> Option<f64> {
        let spreads: Vec<f64> = self.rounds.iter().filter_map(|round| round.spread).collect();
        (!spreads.is_empty()).then(|| spreads.iter().sum::<f64>() / spreads.len() as f64)
    }

    /// Mean over the rounds.
    pub fn seconds_of_round(&self) -> f64 {
        self.rounds.iter().map(|round| round.seconds).sum::<f64>() / self.rounds.len().max(1) as f64
    }

    /// Bytes of all sockets in both directions.
    pub fn sent(&self) -> u64 {
        self.server_socket.0 + self.server_socket.1
    }

    /// Bytes that fp32 federated averaging would have sent for the same rounds and cohorts: a model down and a model up for
    /// every update, and the last model down once more. Payload only, so the comparison favors fp32.
    pub fn fp32_bytes(&self) -> u64 {
        let updates: u64 = self.rounds.iter().map(|round| round.updates).sum();
        let last = self.rounds.last().map_or(0, |round| round.updates);
        let models = updates.saturating_mul(2).saturating_add(last);
        models.saturating_mul(4).saturating_mul(self.parameters)
    }

    /// As [`Score::fp32_bytes`], less the first model down: like our clients, those of the baseline draw it from the seed.
    pub fn fp32_bytes_without_first(&self) -> u64 {
        let first = self.rounds.first().map_or(0, |round| round.updates);
        self.fp32_bytes()
            .saturating_sub(first.saturating_mul(4).saturating_mul(self.parameters))
    }

    /// Bytes of fp32 federated averaging / bytes sent.
    pub fn ratio(&self) -> f64 {
        self.fp32_bytes() as f64 / self.sent().max(1) as f64
    }

    /// As [`Score::ratio`], with [`Score::fp32_bytes_without_first`].
    pub fn ratio_without_first(&self) -> f64 {
        self.fp32_bytes_without_first() as f64 / self.sent().max(1) as f64
    }

    /// Frame bits per value of the model: of the mean update and of the mean frame to a client.
    pub fn bits(&self) -> (f64, f64) {
        let frames: u64 = self.rounds.iter().map(|round| round.updates).sum();
        let values = (frames * self.parameters).max(1) as f64;
        let up: u64 = self.rounds.iter().map(|round| round.frames_up).sum();
        let down: u64 = self.rounds.iter().map(|round| round.frames_down).sum();
        (up as f64 * 8.0 / values, down as f64 * 8.0 / values)
    }

    /// Bytes on the sockets beside the frames, for each update: the mean over the rounds without the first two, in which
    /// clients join and fetch the first model, and without the last. `None` for fewer than four rounds.
    pub fn fixed(&self) -> Option<f64> {
        let rounds = self.rounds.get(2..self.rounds.len().checked_sub(1)?)?;
        let updates: u64 = rounds.iter().map(|round| round.updates).sum();
        let beside = rounds.iter().map(|round| round.sent().saturating_sub(round.frames()));
        (updates > 0).then(|| beside.sum::<u64>() as f64 / updates as f64)
    }

    /// Accuracy of the last model.
    pub fn accuracy(&self) -> Option<f64> {
        self.rounds.last().and_then(|round| round.accuracy)
    }

    /// Perplexity of the last model, if the model of some client does not classify.
    pub fn perplexity(&self) -> Option<f64> {
        self.rounds.last().and_then(|round| round.perplexity)
    }

    /// Root mean squared error of the last model, if it predicts numbers.
    pub fn rmse(&self) -> Option<f64> {
        self.rounds.last().and_then(RoundLine::rmse)
    }

    /// Accuracy of the last model, or its perplexity if no client classifies, as one value.
    pub fn quality(&self) -> String {
        self.rounds.last().map_or("-".to_owned(), RoundLine::quality)
    }

    /// Bytes that one side wrote and the other never read, up and down: the last HTTP/2 frames and the TLS alert of a
    /// connection that the other side had closed already.
    pub fn unread(&self) -> (u64, u64) {
        let up = self.client_socket.0.saturating_sub(self.server_socket.0);
        let down = self.server_socket.1.saturating_sub(self.client_socket.1);
        (up, down)
    }

    /// Whether the ledger equals the bytes on the server's sockets, and these equal the bytes on the clients' sockets except
    /// for closing connections.
    pub fn balanced(&self) -> bool {
        let (up, down) = self.unread();
        let carried = (self.client_socket.0 - up, self.client_socket.1 + down);
        let closing = up.max(down) <= self.clients * MAX_CLOSING;
        self.ledger == self.server_socket && carried == self.server_socket && closing
    }

    /// The summary at the end, in lines of at most 80 columns; the result in bold if `is_bold`.
    pub fn summary(&self, is_bold: bool) -> String {
        let (bold, plain) = if is_bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let mut out = String::new();
        let (what, value) = match (self.accuracy(), self.perplexity(), self.rmse()) {
            (None, Some(perplexity), _) => ("perplexity", significant(perplexity)),
            (None, None, Some(rmse)) => ("rmse", format!("{rmse:.4}")),
            _ => ("accuracy", self.quality()),
        };
        let _ = writeln!(
            out,
            "{bold}{what:<16}{value:>12}{plain}   of the last model, on held-out examples"
        );
        if let Some(average) = self.rounds.last().and_then(RoundLine::quality_of_average) {
            let _ = writeln!(
                out,
                "average         {average:>12}   of the mean of the last versions, the same examples"
            );
        }
        let _ = writeln!(
            out,
            "sent            {:>12}   {} up, {} down on the sockets",
            bytes(self.sent()),
            bytes(self.server_socket.0),
            bytes(self.server_socket.1)
        );
        let _ = writeln!(
            out,
            "fp32 averaging  {:>12}   the same rounds and clients, payload only",
            bytes(self.fp32_bytes())
        );
        let _ = writeln!(
            out,
            "{bold}ratio           {:>11.1}x{plain}   fewer bytes",
            self.ratio()
        );
        let ledger = self.ledger.0 + self.ledger.1;
        let equal = if ledger == self.sent() { "=" } else { "IS NOT" };
        let _ = writeln!(
            out,
            "ledger          {ledger:>12} B {equal} {} B on the server's sockets",
            self.sent()
        );
        let clients = self.client_socket.0 + self.client_socket.1;
        let equal = if self.balanced() { "=" } else { "IS NOT" };
        let (up, down) = self.unread();
        let _ = writeln!(
            out,
            "clients         {clients:>12} B {equal} {} B, and {} B unread at the close",
            self.sent(),
            up + down
        );
        let _ = writeln!(out, "final model     {}", self.model);
        out
    }
}

impl RoundLine {
    /// The line of a round that has closed and is not evaluated yet; `None` for any other event.
    pub fn from_event(event: &Event) -> Option<Self> {
        let Event::RoundClosed(round) = event else { return None };
        Some(Self {
            round: round.round,
            updates: round.updates as u64,
            accuracy: None,
            perplexity: None,
            test_loss: None,
            train_loss: round.loss,
            up: round.flow.socket_up,
            down: round.flow.socket_down,
            frames_up: round.flow.frames_up(),
            frames_down: round.flow.frames_down(),
            seconds: round.seconds,
            spread: None,
            metrics: prefixed("train", &round.metrics).collect(),
        })
    }

    /// Adds the evaluation of the round's model.
    pub fn evaluated(&mut self, evaluated: &ModelEvaluation) {
        self.accuracy = evaluated.accuracy;
        self.perplexity = evaluated.perplexity;
        self.test_loss = Some(evaluated.loss);
        self.metrics.extend(prefixed("evaluation", &evaluated.metrics));
    }

    /// Bytes on the sockets in both directions.
    pub fn sent(&self) -> u64 {
        self.up.saturating_add(self.down)
    }

    /// Bytes of frames in both directions.
    pub fn frames(&self) -> u64 {
        self.frames_up.saturating_add(self.frames_down)
    }

    /// Root mean squared error, if the model predicts numbers.
    pub fn rmse(&self) -> Option<f64> {
        self.metrics.get(RMSE).copied()
    }

    /// Accuracy, or perplexity if no client classifies, or the error of numbers.
    fn quality(&self) -> String {
        quality(self.accuracy, self.perplexity, self.rmse())
    }

    /// A figure of the averaged model; `None` if the run has none.
    pub fn average(&self, name: &str) -> Option<f64> {
        self.metrics.get(&format!("evaluation/average_{name}")).copied()
    }

    /// As [`RoundLine::quality`], of the averaged model; `None` if the run has none.
    fn quality_of_average(&self) -> Option<String> {
        let loss = self.average("loss")?;
        let rmse = self.average("rmse");
        let perplexity = rmse.is_none().then(|| loss.exp());
        Some(quality(self.average("accuracy"), perplexity, rmse))
    }

    /// The line of a table under [`header`].
    pub fn text(&self, parameters: u64) -> String {
        let values = (self.updates.max(1) * parameters.max(1)) as f64;
        format!(
            "{:>5} {:>8}  {:>9}  {:>10}  {:>8}  {:>8}  {:>6.3}/{:<6.3} {:>6.2}",
            self.round,
            self.quality(),
            self.test_loss.map_or("-".into(), |loss| format!("{loss:.4}")),
            format!("{:.4}", self.train_loss),
            bytes(self.up),
            bytes(self.down),
            8.0 * self.frames_up as f64 / values,
            8.0 * self.frames_down as f64 / values,
            self.seconds,
        )
    }
}

fn prefixed<'a>(prefix: &'a str, metrics: &'a BTreeMap<String, f64>) -> impl Iterator<Item = (String, f64)> + 'a {
    metrics
        .iter()
        .map(move |(name, mean)| (format!("{prefix}/{name}"), *mean))
}

fn quality(accuracy: Option<f64>, perplexity: Option<f64>, rmse: Option<f64>) -> String {
    match (accuracy, perplexity, rmse) {
        (Some(share), ..) => format!("{:.2} %", 100.0 * share),
        (None, Some(perplexity), _) => format!("{} ppl", significant(perplexity)),
        (None, None, Some(rmse)) => format!("{} rmse", significant(rmse)),
        (None, None, None) => "-".to_owned(),
    }
}

/// A positive number in at most five characters.
fn significant(value: f64) -> String {
    match value {
        v if v < 99.995 => format!("{v:.2}"),
        v if v < 999.95 => format!("{v:.1}"),
        v if v < 99_999.5 => format!("{v:.0}"),
        v => format!("{v:.0e}"),
    }
}

/// The header of the table of [`RoundLine::text`].
pub fn header() -> String {
    format!(
        "{:>5} {:>8}  {:>9}  {:>10}  {:>8}  {:>8}  {:^13} {:>6}",
        "round", "accuracy", "test loss", "train loss", "up", "down", "bits up/down", "time s"
    )
}

/// Bytes for people: three significant digits and a binary unit.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{n} B"),
        (_, v) if v < 9.995 => format!("{v:.2} {}", units[unit]),
        (_, v) if v < 99.95 => format!("{v:.1} {}", units[unit]),
        (_, v) => format!("{v:.0} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (1024, "1.00 KiB"),
            (123_456, "121 KiB"),
            (5 << 20, "5.00 MiB"),
        ];
        for (n, text) in cases {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn lines_fit_80_columns_and_the_result_is_bold_where_it_shall_be() {
        let round = RoundLine {
            round: 10_000,
            updates: 1000,
            accuracy: Some(1.0),
            perplexity: None,
            test_loss: Some(12.3456),
            train_loss: 123.4567,
            up: 1023 << 20,
            down: 999 << 30,
            frames_up: 4 * 1_000_000_000,
            frames_down: 4 * 1_000_000_000,
            seconds: 999.99,
            spread: None,
            metrics: BTreeMap::new(),
        };
        assert_eq!(round.text(1_000_000).chars().count(), 79);
        let mut language = round.clone();
        language.accuracy = None;
        for perplexity in [1.0, 99.999, 999.96, 99_999.6, f64::MAX] {
            language.perplexity = Some(perplexity);
            assert!(
                language.text(1_000_000).chars().count() <= 80,
                "{}",
                language.text(1_000_000)
            );
        }
        assert_eq!(header().chars().count(), 79);
        let score = Score {
            parameters: 1_000_000,
            clients: 1000,
            rounds: vec![round],
            server_socket: (123_456_789_012, 99_999_999_999),
            client_socket: (123_456_789_012, 99_999_999_999),
            ledger: (123_456_789_012, 99_999_999_999),
            model: "f".repeat(64),
            times: Vec::new(),
        };
        let plain = score.summary(false);
        assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        assert!(!plain.contains('\x1b'));
        let bold = score.summary(true);
        assert_eq!(bold.replace("\x1b[1m", "").replace("\x1b[0m", ""), plain);
        assert!(bold.contains("\x1b[1mratio") && bold.contains("\x1b[1maccuracy"));
        let mut score = score;
        (score.rounds[0].accuracy, score.rounds[0].perplexity) = (None, Some(23.456));
        assert!(
            score
                .summary(false)
                .starts_with("perplexity             23.46   of the last model")
        );
    }

    #[test]
    fn fixed_costs_are_of_the_rounds_between_joining_and_leaving() {
        let round = |fixed: u64| RoundLine {
            round: 1,
            updates: 2,
            accuracy: None,
            perplexity: None,
            test_loss: None,
            train_loss: 1.0,
            up: 1_000 + fixed,
            down: 500,
            frames_up: 1_000,
            frames_down: 500,
            seconds: 0.0,
            spread: None,
            metrics: BTreeMap::new(),
        };
        let score = |fixed: &[u64]| Score {
            parameters: 1,
            clients: 2,
            rounds: fixed.iter().copied().map(round).collect(),
            server_socket: (0, 0),
            client_socket: (0, 0),
            ledger: (0, 0),
            model: String::new(),
            times: Vec::new(),
        };
        assert_eq!(score(&[9_000, 900, 440, 460, 700]).fixed(), Some(225.0));
        assert_eq!(score(&[9_000, 900, 440]).fixed(), None);
        assert_eq!(score(&[]).fixed(), None);
    }

    #[test]
    fn fp32_averaging_counts_both_directions_and_the_last_model() {
        let round = |round| RoundLine {
            round,
            updates: 3,
            accuracy: Some(0.5),
            perplexity: None,
            test_loss: None,
            train_loss: 1.0,
            up: 0,
            down: 0,
            frames_up: 0,
            frames_down: 0,
            seconds: 0.0,
            spread: None,
            metrics: BTreeMap::new(),
        };
        let score = Score {
            parameters: 10,
            clients: 3,
            rounds: vec![round(1), round(2)],
            server_socket: (60, 40),
            client_socket: (60, 40),
            ledger: (60, 40),
            model: String::new(),
            times: Vec::new(),
        };
        assert_eq!(score.fp32_bytes(), (2 * 2 * 3 + 3) * 40);
        assert!((score.ratio() - 6.0).abs() < 1e-12);
        assert!(score.balanced());
    }
}
