//! The data of a sweep's page, which the scripts of `page` draw.

use serde::Serialize;

use super::outcome::{Outcome, PhaseOutcome};
use super::phase::Phase;
use super::summary::{Group, Summary};
use super::text::{cells, spread};
use crate::score::{RoundLine, Score};
use crate::statistics::{Quality, Spread};

/// A phase and the trials behind each of its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) outcome: &'a PhaseOutcome,
    /// One for each row.
    pub(super) groups: &'a [Group],
}

/// What `page/js/sweep.js` reads.
#[derive(Debug, Serialize)]
struct Page<'a> {
    title: &'a str,
    warnings: Vec<String>,
    phases: Vec<PhaseData>,
}

#[derive(Debug, Serialize)]
struct PhaseData {
    id: &'static str,
    title: &'static str,
    about: String,
    quality: &'static str,
    digits: usize,
    /// Which loss that of the points is.
    loss: &'static str,
    table: Table,
    times: Option<Table>,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Column {
    name: String,
    note: String,
}

/// A row of the table, as it is drawn.
#[derive(Debug, Serialize)]
struct Point {
    name: String,
    variant: String,
    /// Whether it was chosen among several.
    marked: bool,
    front: bool,
    /// Of the last three rounds, over the seeds; and as text.
    mean: Option<f64>,
    spread: String,
    /// Of a run in both directions.
    bytes: f64,
    ratio: f64,
    seeds: Vec<Seed>,
    loss: Vec<Range>,
    /// Bytes of a run: updates, model updates, messages of the rounds, all else.
    kinds: [f64; 4],
    /// The first three of each round; empty if the point is not reported.
    rounds: Vec<[f64; 3]>,
}

#[derive(Debug, Serialize)]
struct Seed {
    seed: u64,
    bytes: u64,
    quality: Option<f64>,
}

/// A round's loss over the seeds.
#[derive(Debug, Serialize)]
struct Range {
    low: f64,
    mean: f64,
    high: f64,
}

/// Writes the page of a sweep. `title`: the name of its file.
pub(super) fn page(title: &str, outcome: &Outcome, sections: &[Section<'_>]) -> serde_json::Result<String> {
    let mut warnings = Vec::new();
    if outcome.quick {
        warnings.push("The quick form: fewer rounds and seeds, too short for a figure to be cited.".to_owned());
    }
    if outcome.builds.len() > 1 {
        warnings.push(format!(
            "The trials were run by {} builds of the program: {}.",
            outcome.builds.len(),
            outcome.builds.join(", ")
        ));
    }
    let page = Page {
        title,
        warnings,
        // What is reported comes first; how it was chosen follows.
        phases: sections.iter().rev().map(Section::data).collect(),
    };
    fl_page::SWEEP.with_data(&format!("{title}: sweep"), &page)
}

impl Section<'_> {
    fn is_choice(&self) -> bool {
        self.outcome.phase == Phase::Choose
    }

    fn data(&self) -> PhaseData {
        let quality = self.outcome.quality;
        let mut rounds = self.groups.iter().flat_map(rounds_of);
        let is_tested = rounds.any(|round| round.test_loss.is_some());
        let rows = self.outcome.rows.iter().zip(self.groups);
        PhaseData {
            id: if self.is_choice() { "choice" } else { "report" },
            title: if self.is_choice() { "Choice" } else { "Report" },
            about: self.outcome.about("bold:"),
            quality: quality.map_or("quality", Quality::name),
            digits: quality.map_or(2, Quality::digits),
            loss: match (is_tested, self.is_choice()) {
                (true, true) => "validation loss",
                (true, false) => "test loss",
                (false, _) => "training loss",
            },
            table: table(self.outcome),
            times: times(self.outcome),
            points: rows.map(|(row, group)| self.point(row, group, is_tested)).collect(),
        }
    }

    fn point(&self, row: &Summary, group: &Group, is_tested: bool) -> Point {
        let quality = self.outcome.quality;
        let seeds = group.records.iter().map(|record| Seed {
            seed: record.seed,
            bytes: record.score.sent(),
            quality: quality.and_then(|quality| quality.tail(&record.score)),
        });
        let reported = if row.chosen { group.rounds() } else { 0 };
        Point {
            name: self.name(row),
            variant: row.variant.clone(),
            marked: row.chosen && self.is_choice(),
            front: row.front,
            mean: row.tail.map(|tail| tail.mean),
            spread: spread(row.tail, quality.map_or(2, Quality::digits)),
            bytes: row.bytes_up + row.bytes_down,
            ratio: row.ratio,
            seeds: seeds.collect(),
            loss: (0..group.rounds()).map(|at| loss(group, at, is_tested)).collect(),
            kinds: means(group, kinds),
            rounds: (0..reported)
                .map(|at| means(group, |score| score.rounds.get(at).map_or([0; 3], round_kinds)))
                .collect(),
        }
    }

    /// The name of a row's point: its label, with the variant where points of several variants have labels.
    fn name(&self, row: &Summary) -> String {
        let mut others = self.outcome.rows.iter().filter(|other| other.variant != row.variant);
        let is_alone = others.all(|other| other.label.is_empty());
        match row.label.as_str() {
            "" => row.variant.clone(),
            label if is_alone => label.to_owned(),
            label => format!("{} {label}", row.variant),
        }
    }
}

fn rounds_of(group: &Group) -> impl Iterator<Item = &RoundLine> {
    group.records.iter().flat_map(|record| &record.score.rounds)
}

fn loss(group: &Group, at: usize, is_tested: bool) -> Range {
    let rounds = group.records.iter().filter_map(|record| record.score.rounds.get(at));
    let losses = rounds.filter_map(|round| {
        if is_tested {
            round.test_loss
        } else {
            Some(round.train_loss)
        }
    });
    let losses: Vec<f64> = losses.filter(|loss| loss.is_finite()).collect();
    Range {
        low: losses.iter().copied().fold(f64::INFINITY, f64::min),
        mean: losses.iter().sum::<f64>() / losses.len() as f64,
        high: losses.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

fn kinds(score: &Score) -> [u64; 4] {
    let mut rounds = [0; 3];
    for round in &score.rounds {
        for (sum, bytes) in rounds.iter_mut().zip(round_kinds(round)) {
            *sum += bytes;
        }
    }
    let [updates, model_updates, messages] = rounds;
    let all: u64 = rounds.iter().sum();
    [updates, model_updates, messages, score.sent().saturating_sub(all)]
}

fn round_kinds(round: &RoundLine) -> [u64; 3] {
    let messages = round.sent().saturating_sub(round.frames());
    [round.frames_up, round.frames_down, messages]
}

/// The mean of the seeds.
fn means<const N: usize>(group: &Group, of: impl Fn(&Score) -> [u64; N]) -> [f64; N] {
    let all: Vec<[u64; N]> = group.records.iter().map(|record| of(&record.score)).collect();
    std::array::from_fn(|kind| {
        let values: Vec<f64> = all.iter().map(|kinds| kinds[kind] as f64).collect();
        Spread::of(&values).map_or(0.0, |spread| spread.mean)
    })
}

fn table(outcome: &PhaseOutcome) -> Table {
    let quality = outcome.quality.map_or("quality", Quality::name);
    let less = format!("less {}", outcome.baseline);
    let reach = format!("bytes {}", outcome.reach_heading());
    let mut columns = vec![
        column("variant", ""),
        column("point", ""),
        column(quality, "last model"),
        column(quality, "last 3 rounds"),
        column(&less, "last model, 95 %"),
        column(&less, "last 3 rounds, 95 %"),
    ];
    if outcome.has_average() {
        columns.push(column(quality, "averaged model"));
        columns.push(column(&less, "averaged model, 95 %"));
    }
    columns.extend([
        column("bytes", ""),
        column("bits a value", "up / down"),
        column("ratio", "to fp32 averaging"),
        column("ratio", "without its first download"),
        column("ratio", &reach),
    ]);
    Table {
        columns,
        rows: cells(outcome).split_off(1),
    }
}

fn column(name: &str, note: &str) -> Column {
    Column {
        name: name.to_owned(),
        note: note.to_owned(),
    }
}

/// Seconds of all rounds if every client had the link of the column; `None` if real sockets carried the messages.
fn times(outcome: &PhaseOutcome) -> Option<Table> {
    let first = outcome.rows.iter().find(|row| !row.times.is_empty())?;
    let mut columns = vec![
        column("variant", ""),
        column("point", ""),
        column("own links", ""),
        column("spread", ""),
    ];
    for time in &first.times {
        columns.push(column(
            &format!("{:.0}", time.mbit),
            &format!("{:.0} ms", time.latency_ms),
        ));
    }
    let mut rows = Vec::new();
    for row in &outcome.rows {
        let mut cells = vec![row.variant.clone(), row.label.clone()];
        cells.extend([row.seconds, row.spread].map(|value| value.map_or_else(|| "-".to_owned(), seconds)));
        cells.extend(row.times.iter().map(|time| seconds(time.seconds)));
        rows.push(cells);
    }
    Some(Table { columns, rows })
}

fn seconds(seconds: f64) -> String {
    let digits = usize::from(seconds < 99.95);
    format!("{seconds:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::file::tests::{FILE, read};
    use crate::sweep::summary::tests::group;

    #[test]
    fn a_table_has_a_heading_for_each_cell_with_and_without_averaged_models() {
        let mut groups = [group("fp32", 0, &[&[0.9]], 1000), group("ours", 0, &[&[0.85]], 100)];
        for averages in [false, true] {
            if averages {
                for group in &mut groups {
                    let last = group.records[0].score.rounds.last_mut().unwrap();
                    last.metrics.insert("evaluation/average_accuracy".to_owned(), 0.9);
                }
            }
            let outcome = PhaseOutcome::of(&read(FILE).unwrap(), Phase::Report, &groups);
            assert_eq!(outcome.has_average(), averages);
            let table = table(&outcome);
            assert_eq!(table.rows.len(), outcome.rows.len());
            assert!(
                table.rows.iter().all(|row| row.len() == table.columns.len()),
                "{table:?}"
            );
        }
    }

    #[test]
    fn kinds_add_up_to_the_sockets() {
        let group = group("ours", 0, &[&[0.5, 0.6]], 100);
        let score = &group.records[0].score;
        assert_eq!(kinds(score), [100, 100, 200, 10]);
        assert_eq!(kinds(score).iter().sum::<u64>(), score.sent());
    }
}
