//! A point's trials as one row: quality, paired differences to the baseline, bytes.

use serde::Serialize;

use super::trial::Record;
use crate::score::{LinkTime, RoundLine, Score};
use crate::statistics::{Estimate, Quality, Spread};

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) variant: String,
    pub(super) point: usize,
    pub(super) label: String,
    /// One for each seed that has finished, in the order of the seeds.
    pub(super) records: Vec<Record>,
    pub(super) failed: usize,
}

impl Group {
    pub(super) fn rounds(&self) -> usize {
        let rounds = self.records.iter().map(|record| record.score.rounds.len());
        rounds.max().unwrap_or(0)
    }
}

/// A row of a sweep's table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) variant: String,
    pub(crate) point: usize,
    /// What the grids set, for people; empty if nothing.
    pub(crate) label: String,
    pub(crate) settings: Vec<(String, String)>,
    /// Whether the point is the one of its variant that is reported.
    pub(crate) chosen: bool,
    /// Whether no other point of the table has as few bytes and as good models over the last three rounds.
    pub(crate) front: bool,
    pub(crate) seeds: Vec<u64>,
    pub(crate) failed: usize,
    pub(crate) last: Option<Spread>,
    /// Mean quality of the last three rounds' models.
    pub(crate) tail: Option<Spread>,
    /// Quality of the averaged model, where the run has one.
    pub(crate) averaged: Option<Spread>,
    /// `last` less that of the baseline under the same seed; `None` for the baseline.
    pub(crate) last_difference: Option<Estimate>,
    /// `tail` less that of the baseline under the same seed.
    pub(crate) tail_difference: Option<Estimate>,
    /// `averaged` less that of the baseline under the same seed.
    pub(crate) averaged_difference: Option<Estimate>,
    /// Bytes on the sockets from the clients, mean of the seeds.
    pub(crate) bytes_up: f64,
    /// Bytes on the sockets to the clients, mean of the seeds.
    pub(crate) bytes_down: f64,
    /// Bits of the frames for each value of the model, up and down.
    pub(crate) bits: (f64, f64),
    /// Bytes of fp32 averaging / bytes on the sockets, mean of the seeds.
    pub(crate) ratio: f64,
    /// The same, without the baseline's first download, which clients that draw the first weights do not make.
    pub(crate) ratio_without_first: f64,
    /// The bytes until the baseline's quality is nearly reached.
    pub(crate) reach: Option<Reach>,
    /// Seconds of the rounds over the links of the file, mean of the seeds; `None` if real sockets carried the messages.
    pub(crate) seconds: Option<f64>,
    /// Seconds from the first update of a round to its last over the links of the file, mean of the rounds and seeds; `None` as
    /// of `seconds`.
    pub(crate) spread: Option<f64>,
    /// Seconds of the rounds over other links, mean of the seeds.
    pub(crate) times: Vec<LinkTime>,
}

impl Summary {
    /// The quality by which a point is chosen: that of the averaged model or, without one, of the last three rounds.
    pub(super) fn judged(&self) -> Option<Spread> {
        self.averaged.or(self.tail)
    }

    /// [`Summary::judged`] less that of the baseline under the same seed.
    pub(super) fn judged_difference(&self) -> Option<Estimate> {
        match self.averaged {
            Some(_) => self.averaged_difference,
            None => self.tail_difference,
        }
    }
}

/// What it takes to reach a quality: that of the baseline under the same seed, last three rounds, less the file's
/// `reach`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Reach {
    /// The quality to reach, mean of the seeds.
    pub(crate) target: f64,
    /// Seeds under which a round's model reaches it.
    pub(crate) reached: usize,
    /// Bytes on the sockets up to the first such model, mean of the seeds that reach it.
    pub(crate) bytes: Option<f64>,
    /// Bytes of the baseline's whole run as fp32 payload / `bytes`, mean of the seeds that reach it.
    pub(crate) ratio: Option<f64>,
}

impl Group {
    /// The times of the trials over each link, mean of those that have them.
    fn times(&self) -> Vec<LinkTime> {
        let all = self.records.iter().map(|record| &record.score.times);
        let all: Vec<&Vec<LinkTime>> = all.filter(|times| !times.is_empty()).collect();
        let Some(first) = all.first() else { return Vec::new() };
        let means = first.iter().enumerate().map(|(at, time)| {
            let own = all.iter().filter_map(|times| times.get(at));
            let seconds = own.map(|time| time.seconds).sum::<f64>() / all.len() as f64;
            LinkTime { seconds, ..*time }
        });
        means.collect()
    }

    /// Of the trials that have the figure.
    fn spread(&self, of: impl Fn(&Score) -> Option<f64>) -> Option<Spread> {
        let values = self.records.iter().filter_map(|record| of(&record.score));
        Spread::of(&values.collect::<Vec<_>>())
    }

    fn mean(&self, of: fn(&Score) -> f64) -> f64 {
        self.spread(|score| Some(of(score))).map_or(0.0, |spread| spread.mean)
    }

    fn under(&self, seed: u64) -> Option<&Score> {
        let found = self.records.iter().find(|record| record.seed == seed);
        found.map(|record| &record.score)
    }

    /// The row of this group. `baseline`: the group to which it is compared. `reach`: as in the file.
    pub(super) fn summary(&self, quality: Option<Quality>, baseline: Option<&Self>, reach: f64) -> Summary {
        let other = baseline.filter(|baseline| !std::ptr::eq(*baseline, self));
        let spread = |of: fn(Quality, &Score) -> Option<f64>| self.spread(|score| of(quality?, score));
        let difference = |of: fn(Quality, &Score) -> Option<f64>| {
            let pairs = self.records.iter().filter_map(|record| {
                let theirs = other?.under(record.seed)?;
                Some(of(quality?, &record.score)? - of(quality?, theirs)?)
            });
            Estimate::of(&pairs.collect::<Vec<_>>())
        };
        Summary {
            spread: self.spread(Score::spread).map(|spread| spread.mean),
            seconds: self.spread(Score::virtual_seconds).map(|seconds| seconds.mean),
            times: self.times(),
            variant: self.variant.clone(),
            point: self.point,
            label: self.label.clone(),
            settings: self
                .records
                .first()
                .map_or_else(Vec::new, |record| record.settings.clone()),
            chosen: false,
            front: false,
            seeds: self.records.iter().map(|record| record.seed).collect(),
            failed: self.failed,
            last: spread(Quality::last),
            tail: spread(Quality::tail),
            averaged: spread(Quality::averaged),
            last_difference: difference(Quality::last),
            tail_difference: difference(Quality::tail),
            averaged_difference: difference(Quality::averaged),
            bytes_up: self.mean(|score| score.server_socket.0 as f64),
            bytes_down: self.mean(|score| score.server_socket.1 as f64),
            bits: (self.mean(|score| score.bits().0), self.mean(|score| score.bits().1)),
            ratio: self.mean(Score::ratio),
            ratio_without_first: self.mean(Score::ratio_without_first),
            reach: quality.and_then(|quality| self.reach(quality, baseline?, reach)),
        }
    }

    fn reach(&self, quality: Quality, baseline: &Self, less: f64) -> Option<Reach> {
        let mut targets = Vec::new();
        let mut bytes = Vec::new();
        let mut ratios = Vec::new();
        for record in &self.records {
            let Some(with) = baseline.under(record.seed) else {
                continue;
            };
            let Some(tail) = quality.tail(with) else { continue };
            let target = quality.goodness(tail) - less;
            targets.push(quality.goodness(target));
            if let Some(sent) = bytes_to(&record.score, quality, target) {
                bytes.push(sent as f64);
                ratios.push(with.fp32_bytes() as f64 / (sent as f64).max(1.0));
            }
        }
        Some(Reach {
            target: Spread::of(&targets)?.mean,
            reached: bytes.len(),
            bytes: Spread::of(&bytes).map(|bytes| bytes.mean),
            ratio: Spread::of(&ratios).map(|ratios| ratios.mean),
        })
    }
}

/// Bytes on the sockets until the clients have the first model of at least this goodness: those of its round and all
/// before, its own download, which is made in the next round, and all bytes outside of rounds.
fn bytes_to(score: &Score, quality: Quality, goodness: f64) -> Option<u64> {
    let at = score.rounds.iter().position(|round| {
        let value = quality.at(round);
        value.is_some_and(|value| quality.goodness(value) >= goodness)
    })?;
    let all: u64 = score.rounds.iter().map(RoundLine::sent).sum();
    let before: u64 = score.rounds[..=at].iter().map(RoundLine::sent).sum();
    let download = score.rounds.get(at + 1).map_or(0, |round| round.frames_down);
    Some(before + download + score.sent().saturating_sub(all))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::phase::Phase;
    use super::*;

    /// A run of 10 values and two clients with these accuracies; every round costs `cost` bytes each way.
    pub(crate) fn record(variant: &str, seed: u64, accuracies: &[f64], cost: u64) -> Record {
        let round = |(at, accuracy): (usize, &f64)| RoundLine {
            round: at as u64 + 1,
            updates: 2,
            accuracy: Some(*accuracy),
            perplexity: None,
            test_loss: Some(1.0 / (at + 1) as f64),
            train_loss: 1.0,
            up: cost,
            down: cost,
            frames_up: cost / 2,
            frames_down: cost / 2,
            seconds: 0.5,
            spread: None,
            metrics: BTreeMap::new(),
        };
        let sent = cost * accuracies.len() as u64 + 5;
        Record {
            phase: Phase::Report,
            variant: variant.to_owned(),
            settings: Vec::new(),
            seed,
            build: String::new(),
            score: Score {
                parameters: 10,
                clients: 2,
                rounds: accuracies.iter().enumerate().map(round).collect(),
                server_socket: (sent, sent),
                client_socket: (sent, sent),
                ledger: (sent, sent),
                model: String::new(),
                times: Vec::new(),
            },
        }
    }

    pub(crate) fn group(variant: &str, point: usize, accuracies: &[&[f64]], cost: u64) -> Group {
        let records = accuracies.iter().enumerate();
        Group {
            variant: variant.to_owned(),
            point,
            label: String::new(),
            records: records
                .map(|(seed, all)| record(variant, seed as u64, all, cost))
                .collect(),
            failed: 0,
        }
    }

    #[test]
    fn differences_are_paired_by_the_seed() {
        let fp32 = group("fp32", 0, &[&[0.5, 0.6, 0.7, 0.8], &[0.5, 0.8, 0.8, 0.9]], 100);
        let ours = group("ours", 0, &[&[0.4, 0.6, 0.7, 0.79], &[0.5, 0.7, 0.8, 0.87]], 10);
        let found = ours.summary(Some(Quality::Accuracy), Some(&fp32), 0.5);
        let last = found.last_difference.unwrap();
        assert!((last.mean + 2.0).abs() < 1e-9);
        // Differences -1 and -3: deviation 1.4142, error 1, t with one degree of freedom.
        assert!((last.half_width.unwrap() - 12.7062).abs() < 1e-3);
        assert!((found.tail.unwrap().mean - (69.666_666 + 79.0) / 2.0).abs() < 1e-4);
        // (2 * 8 + 2) models of 40 B against 2 * 45 B; the first download is two models.
        assert!((found.ratio - 720.0 / 90.0).abs() < 1e-9);
        assert!((found.ratio_without_first - 640.0 / 90.0).abs() < 1e-9);
    }

    #[test]
    fn bytes_to_reach_end_with_the_download_of_the_first_good_model() {
        let fp32 = group("fp32", 0, &[&[0.5, 0.7, 0.7, 0.7]], 100);
        let ours = group("ours", 0, &[&[0.4, 0.698, 0.6, 0.7]], 10);
        let reach = |less| ours.summary(Some(Quality::Accuracy), Some(&fp32), less).reach.unwrap();
        // Two rounds of 20 B, a download of 5 B, and 10 B outside of rounds.
        assert_eq!((reach(0.5).reached, reach(0.5).bytes), (1, Some(55.0)));
        assert!((reach(0.5).target - 69.5).abs() < 1e-9);
        assert!((reach(0.5).ratio.unwrap() - 720.0 / 55.0).abs() < 1e-9);
        assert_eq!(reach(0.0).bytes, Some(90.0));
        let worse = group("worse", 0, &[&[0.4, 0.5]], 10).summary(Some(Quality::Accuracy), Some(&fp32), 0.5);
        assert_eq!((worse.reach.unwrap().reached, worse.reach.unwrap().bytes), (0, None));
    }
}
