//! Builds a report from a run's records and its ledger.

mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::{Digest, Stages};
use fl_proto::ClientId;
pub use fl_report::Report;
use fl_report::{
    Baseline, ClientLine, Fidelity as Figures, Flow, Measures, Participation, RoundLine, Run, SCHEMA, SectionBytes,
    Settings, StageBytes, TensorLine, bits_per_value,
};

use crate::accounting::baseline::BaselineModels;
use crate::accounting::ledger::{Direction, Fidelity, Ledger, Section, share};
use crate::clock::seconds;
use crate::reporting::history::{End, History, Round};
use crate::reporting::moment::Moment;
use crate::state_machine::Versions;
use crate::storage::record::{Accepted, Claim, Millis, Record};
use parts::Parts;

/// The inputs of a report beside records and ledger.
#[derive(Debug, Clone)]
pub(crate) struct RunInfo {
    pub(crate) run: String,
    pub(crate) task: String,
    /// Identifies the run among those of its name.
    pub(crate) instance: String,
    pub(crate) planned: u64,
    /// Values of the model.
    pub(crate) parameters: usize,
    /// Values that travel: fewer with `train.space`.
    pub(crate) travelling: usize,
    pub(crate) tensors: Vec<String>,
    pub(crate) settings: Settings,
}

#[derive(Debug, Default)]
pub(crate) struct ReportBuilder {
    history: History,
    versions: Versions,
    rounds: BTreeMap<u64, RoundLine>,
    parts: Parts,
    closing: BTreeMap<u64, Millis>,
    pub(crate) begun: Option<Digest>,
    /// Clients that evaluated a version, each with its latest evaluation.
    evaluated: BTreeMap<ClientId, ClientLine>,
    opened: Option<Millis>,
    until: Millis,
}

impl ReportBuilder {
    /// Adds one record. Records of a run must be added in order.
    pub(crate) fn add(&mut self, record: &Record) {
        self.history.add(record);
        self.versions.add(record);
        if let Some(at) = record.at() {
            self.opened.get_or_insert(at);
            self.until = self.until.max(at);
        }
        match record {
            Record::RoundOpened { round, cohort, .. } => self.parts.asks(*round, cohort),
            Record::MembersReplaced { round, by, .. } => self.parts.asks(*round, by),
            Record::UpdateAccepted { round, client, update } => self.add_update(*round, client, update),
            Record::RoundClosing { round, at, .. } => {
                self.closing.insert(*round, *at);
            }
            Record::RoundClosed {
                round,
                step,
                limited,
                at,
            } => {
                for limited in limited.iter().filter(|limited| limited.of == Claim::Update) {
                    let part = self.parts.of(*round, Some(limited.client.clone()));
                    part.line.left_out = 1.0 - limited.share();
                }
                let waited = self.parts.waited_until(*round, *at);
                let closing = self.closing.remove(round);
                let line = self.rounds.entry(*round).or_default();
                line.limited = limited.iter().filter(|limited| limited.is_conspicuous()).count() as u64;
                line.aggregate_seconds = closing.map_or(0.0, |closing| seconds(*at, closing));
                line.wait_seconds = waited;
                line.model = step.model.to_string();
                line.frame = step.frame.to_string();
                line.down = stage_bytes(&step.stages);
            }
            Record::Started { plan, at, .. } => {
                (self.begun, self.opened) = (Some(*plan), Some(*at));
            }
            Record::EvaluationAccepted {
                version,
                client,
                evaluation,
            } => {
                let line = self.evaluated.entry(client.clone()).or_default();
                if *version >= line.evaluated_version {
                    line.evaluated_version = *version;
                    line.accuracy = evaluation.correct.map(|correct| correct / evaluation.examples as f64);
                    line.evaluation_loss = Some(evaluation.loss).filter(|loss| loss.is_finite());
                }
            }
            _ => {}
        }
    }

    fn add_update(&mut self, round: u64, client: &ClientId, update: &Accepted) {
        let stages = stage_bytes(&update.stages);
        let train_seconds = seconds(update.train_ms, 0);
        let encode_seconds = seconds(update.encode_ms, 0);
        let line = self.rounds.entry(round).or_default();
        // Less what the ledger has, in the end.
        line.unbooked = line.unbooked.saturating_add(update.len);
        line.train_seconds += train_seconds;
        line.encode_seconds += encode_seconds;
        line.up.add(&stages);
        let opened = self.history.rounds.get(&round).map_or(0, |sums| sums.opened);
        let part = self.parts.of(round, Some(client.clone()));
        part.taken = Some(update.at);
        let part = &mut part.line;
        part.updated = true;
        part.examples = update.examples;
        part.loss = Some(update.loss).filter(|loss| loss.is_finite());
        part.finish_seconds = Some(seconds(update.at, opened));
        part.train_seconds = train_seconds;
        part.encode_seconds = encode_seconds;
        part.stages = stages;
        let metrics = update.metrics.iter();
        part.trained = Measures(metrics.map(|(name, metric)| (name.to_owned(), metric.value)).collect());
    }

    /// The report of these records and a ledger. `moment`: for a served run, the run now.
    pub(crate) fn finish(mut self, subject: &RunInfo, mut ledger: Ledger, moment: Option<&Moment>) -> Report {
        let flows = ledger.rounds();
        for ((round, client), flow) in std::mem::take(&mut ledger.rows) {
            self.parts.of(round, client).line.flow.add(&flow);
        }
        let books = Books {
            subject,
            history: &self.history,
            ledger: &ledger,
            flows: &flows,
        };
        // Of each name that a client invented, a table of all rounds would have a column.
        let [trained, measured] = self.history.metric_names();
        let mut parts = self.parts.into_lines();
        parts.iter_mut().for_each(|part| keep(&trained, &mut part.trained));
        let mut finishes = finishes(&parts);
        let mut rounds = Vec::with_capacity(self.history.rounds.len());
        for (round, sums) in &self.history.rounds {
            let line = self.rounds.remove(round).unwrap_or_default();
            let mut line = books.round(*round, sums, line, finishes.remove(round).unwrap_or_default());
            keep(&trained, &mut line.trained);
            keep(&measured, &mut line.measured);
            rounds.push(line);
        }
        let history = &self.history;
        let mut totals = Flow::default();
        flows.values().for_each(|flow| totals.add(flow));
        let (metered_up, metered_down) = moment.map_or_else(|| ledger.metered(), Moment::metered);
        let model = self.versions.model(self.versions.newest());
        let run = Run {
            name: subject.run.clone(),
            task: subject.task.clone(),
            state: state(history, &self.versions),
            planned: subject.planned,
            parameters: subject.parameters as u64,
            version: self.versions.newest(),
            model: model.map(|model| model.to_string()).unwrap_or_default(),
            instance: subject.instance.clone(),
            opened_ms: self.opened.unwrap_or(0),
            until_ms: self.until,
            chain: ledger
                .entries
                .last_key_value()
                .map(|(_, entry)| entry.to_string())
                .unwrap_or_default(),
        };
        let compared = history.compared(moment.map_or(0, |moment| moment.withheld));
        let mut report = Report {
            schema: SCHEMA,
            run,
            settings: subject.settings.clone(),
            totals,
            pending: moment.map(Moment::unkept).unwrap_or_default(),
            metered_up,
            metered_down,
            // Bytes may be booked to a round that never opened: those before the first.
            balanced: (totals.socket_up, totals.socket_down) == (metered_up, metered_down)
                && ledger.meter.keys().all(|round| books.is_balanced(*round)),
            baselines: baselines(subject)
                .map(|(name, model)| baseline(name, model, &compared, &totals))
                .collect(),
            clients: clients(&parts, &self.evaluated),
            tensors: tensors(subject, &ledger),
            rounds,
            participations: parts,
            savings: Vec::new(),
            costs: None,
        };
        report.savings = fl_report::savings(&report);
        report
    }
}

fn baselines(subject: &RunInfo) -> impl Iterator<Item = (&'static str, u64)> {
    let model = subject.parameters as u64;
    let z = subject.travelling as u64;
    let of_space = (z != model).then_some(("space-fp32", 4 * z));
    [("fedavg-fp32", 4 * model), ("fedavg-fp16", 2 * model)]
        .into_iter()
        .chain(of_space)
}

pub(crate) fn state(history: &History, versions: &Versions) -> String {
    if history.end.is_none()
        && let Some((version, to)) = versions.rolled_back()
        && history.rounds.keys().all(|round| *round <= version)
    {
        return format!("rolled back to version {to}");
    }
    match (&history.end, history.rounds.last_key_value()) {
        (Some(End::Done), _) => "done".to_owned(),
        (Some(End::Failed { round, why }), _) => format!("failed in round {round}: {why}"),
        (None, Some((round, sums))) if sums.closed.is_some() => format!("after round {round}"),
        (None, Some((round, _))) => format!("round {round}"),
        (None, None) => "waiting".to_owned(),
    }
}

struct Books<'a> {
    subject: &'a RunInfo,
    history: &'a History,
    /// Without its rows.
    ledger: &'a Ledger,
    /// Its rows by round.
    flows: &'a BTreeMap<u64, Flow>,
}

impl Books<'_> {
    fn flow(&self, round: u64) -> Flow {
        self.flows.get(&round).copied().unwrap_or_default()
    }

    fn is_balanced(&self, round: u64) -> bool {
        let flow = self.flow(round);
        (flow.socket_up, flow.socket_down) == self.ledger.metered_in(round)
    }

    /// Completes a round's line. `finishes`: seconds from its opening to each update.
    fn round(&self, round: u64, sums: &Round, mut line: RoundLine, mut finishes: Vec<f64>) -> RoundLine {
        line.round = round;
        line.opened_ms = sums.opened;
        line.attempts = sums.attempts.into();
        line.asked = sums.cohort as u64;
        line.updates = sums.updates as u64;
        line.examples = sums.examples;
        line.closed = sums.closed.is_some();
        line.seconds = sums.seconds().unwrap_or(0.0);
        line.loss = sums.mean_loss().filter(|loss| loss.is_finite());
        if let Some(evaluated) = self.history.evaluated(round) {
            line.accuracy = evaluated.accuracy;
            line.perplexity = evaluated.perplexity;
            line.measured = Measures(evaluated.metrics);
            line.evaluation_loss = Some(evaluated.loss).filter(|loss| loss.is_finite());
            line.evaluated = evaluated.examples;
        }
        line.trained = Measures(self.history.trained(round));
        finishes.sort_by(f64::total_cmp);
        line.finish_median = finishes.get(finishes.len().saturating_sub(1) / 2).copied();
        line.finish_last = finishes.last().copied();
        let parameters = self.subject.travelling as u64;
        line.bits_up = bits_per_value(line.up.framed, line.updates, parameters);
        line.bits_down = bits_per_value(line.down.framed, u64::from(line.closed), parameters);
        line.density_up = self.density(round, Direction::Up);
        line.density_down = self.density(round, Direction::Down);
        line.flow = self.flow(round);
        (line.metered_up, line.metered_down) = self.ledger.metered_in(round);
        line.unbooked = line.unbooked.saturating_sub(line.flow.update);
        line.balanced = self.is_balanced(round);
        let entry = self.ledger.entries.get(&round);
        line.link = entry.map(ToString::to_string).unwrap_or_default();
        line
    }

    /// Share of the values of a round's frames that are not zero.
    fn density(&self, round: u64, direction: Direction) -> Option<f64> {
        let sections = self.ledger.sections.get(&(round, direction))?;
        let nonzeros = sections.iter().map(|section| section.nonzeros);
        let values = sections.iter().map(Section::coded);
        share(
            nonzeros.fold(0, u64::saturating_add),
            values.fold(0, u64::saturating_add),
        )
    }
}

/// Removes the measures that have another name.
fn keep(names: &BTreeSet<Arc<str>>, measures: &mut Measures) {
    measures.0.retain(|name, _| names.contains(name.as_str()));
}

fn finishes(parts: &[Participation]) -> BTreeMap<u64, Vec<f64>> {
    let mut out = BTreeMap::<u64, Vec<f64>>::new();
    for part in parts {
        if let Some(finish) = part.finish_seconds {
            out.entry(part.round).or_default().push(finish);
        }
    }
    out
}

fn clients(parts: &[Participation], evaluated: &BTreeMap<ClientId, ClientLine>) -> Vec<ClientLine> {
    let evaluated = evaluated
        .iter()
        .map(|(client, line)| (client.as_str(), (line.clone(), 0.0)));
    let mut out: BTreeMap<&str, (ClientLine, f64)> = evaluated.collect();
    for part in parts {
        let (line, finishes) = out.entry(&part.client).or_default();
        line.asked += u64::from(part.asked);
        line.updates += u64::from(part.updated);
        line.examples = line.examples.saturating_add(part.examples);
        line.train_seconds += part.train_seconds;
        line.encode_seconds += part.encode_seconds;
        line.wait_seconds += part.wait_seconds;
        line.framed = line.framed.saturating_add(part.stages.framed);
        line.flow.add(&part.flow);
        *finishes += part.finish_seconds.unwrap_or(0.0);
    }
    let mut lines = Vec::with_capacity(out.len());
    for (name, (line, finishes)) in out {
        lines.push(ClientLine {
            client: name.to_owned(),
            finish_mean: (line.updates > 0).then(|| finishes / line.updates as f64),
            ..line
        });
    }
    lines
}

fn tensors(subject: &RunInfo, ledger: &Ledger) -> Vec<TensorLine> {
    let mut lines = Vec::new();
    for ((round, direction), sections) in &ledger.sections {
        let figures = ledger
            .fidelity
            .get(&(*round, *direction))
            .map_or(&[][..], Vec::as_slice);
        for section in sections {
            let at = figures.binary_search_by_key(&section.first, |figures| figures.first);
            let fidelity = at.ok().map(|at| &figures[at]).filter(|fidelity| fidelity.frames > 0);
            lines.push(TensorLine {
                round: *round,
                direction: direction.name().to_owned(),
                tensor: section.name(|at| subject.tensors.get(at).map(String::as_str)),
                parameters: section.parameters,
                section: SectionBytes {
                    frames: section.frames,
                    recipe_bytes: section.recipe,
                    index_bytes: section.indices,
                    scale_bytes: section.scales,
                    value_bytes: section.values,
                    bytes: section.bytes(),
                },
                density: section.density(),
                rank: section.mean_rank(),
                bits: section.bits(),
                fidelity: Figures {
                    figures: fidelity.map_or(0, |fidelity| fidelity.frames),
                    cosine: fidelity.and_then(Fidelity::mean_cosine).map(digits),
                    cosine_least: fidelity.map(|fidelity| f64::from(fidelity.least_cosine) / 1000.0),
                    kept: fidelity.and_then(Fidelity::mean_kept).map(digits),
                    kept_least: fidelity.map(|fidelity| f64::from(fidelity.least_kept) / 1000.0),
                    age: fidelity.and_then(Fidelity::mean_age).map(digits),
                    age_most: fidelity.map(|fidelity| fidelity.oldest.into()),
                },
            });
        }
    }
    lines
}

/// A figure with one digit more than the claims that it is a mean of.
fn digits(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn baseline(name: &str, model: u64, compared: &BaselineModels, totals: &Flow) -> Baseline {
    let up = compared.up.saturating_mul(model);
    let down = compared.down.saturating_mul(model);
    let sent = up.saturating_add(down);
    Baseline {
        name: name.to_owned(),
        through: compared.through,
        up,
        down,
        frames_ratio: share(sent, totals.frames_up() + totals.frames_down()).unwrap_or(0.0),
        socket_ratio: share(sent, totals.socket()).unwrap_or(0.0),
    }
}

/// The stages of a frame for a report. Those of an update are its client's claims.
pub(super) fn stage_bytes(stages: &Stages) -> StageBytes {
    StageBytes {
        fp32: stages.fp32,
        reduced: stages.reduced,
        quantized: stages.quantized,
        coded: stages.coded,
        framed: stages.framed,
        entropy_bound: Some(stages.entropy_bound)
            .filter(|bits| bits.is_finite())
            .unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::ledger::Row;
    use crate::storage::record::samples;

    const NAMES: [&str; 3] = ["anna", "berta", "carl"];

    fn report(records: &[Record], rows: impl IntoIterator<Item = Row>) -> Report {
        let (mut filling, mut ledger) = (ReportBuilder::default(), Ledger::default());
        records.iter().for_each(|record| filling.add(record));
        rows.into_iter().for_each(|row| ledger.add(row));
        let subject = RunInfo {
            run: "r".into(),
            task: "t".into(),
            instance: "i".into(),
            planned: 2,
            parameters: 100,
            travelling: 100,
            tensors: vec!["a".into(), "b".into(), "c".into()],
            settings: Settings::default(),
        };
        filling.finish(&subject, ledger, None)
    }

    /// Three clients are asked in each of two rounds, and two of them answer, after one and two seconds.
    fn records() -> Vec<Record> {
        let clients: [ClientId; 3] = NAMES.map(|name| name.parse().unwrap());
        let mut records = Vec::new();
        for round in 1..=2 {
            let at = 10_000 * round;
            records.push(samples::opened(round, 1, &NAMES, at, 1));
            records.extend(clients.iter().map(|client| samples::evaluated(round - 1, client)));
            for (client, n) in clients.iter().take(2).zip(1..) {
                let mut update = Accepted::sample(Digest::of(b""));
                (update.at, update.train_ms, update.stages.framed) = (at + 1_000 * n, 700, 25);
                let client = client.clone();
                records.push(Record::UpdateAccepted { round, client, update });
            }
            records.push(samples::closing(round, at + 2_500));
            records.push(samples::closed(round, at + 3_000));
        }
        records
    }

    #[test]
    fn the_baseline_counts_the_last_models_evaluation_and_no_other() {
        let of = |records: &[Record]| {
            let report = report(records, []);
            let base = report.baseline("fedavg-fp32").unwrap();
            (base.up, base.down)
        };
        let mut records = records();
        assert_eq!(of(&records), (2 * 400, 3 * 400), "the second model is not fetched yet");
        records.push(Record::RunDone { at: 0 });
        assert_eq!(of(&records), (4 * 400, 6 * 400));
        records.extend(["anna", "berta"].map(|name| samples::evaluated(2, &name.parse().unwrap())));
        assert_eq!(of(&records), (4 * 400, 8 * 400));
    }

    #[test]
    fn time_is_split_by_round_client_and_both() {
        let report = report(&records(), []);
        let line = &report.rounds[0];
        assert_eq!((line.seconds, line.aggregate_seconds), (3.0, 0.5));
        assert_eq!((line.finish_median, line.finish_last), (Some(1.0), Some(2.0)));
        assert_eq!((line.train_seconds, line.wait_seconds), (1.4, 3.0));
        assert_eq!((line.accuracy, report.rounds[1].accuracy), (Some(0.75), None));
        assert_eq!(line.bits_up, Some(8.0 * 50.0 / 200.0));
        let anna = &report.clients[0];
        assert_eq!((anna.asked, anna.updates, anna.finish_mean), (2, 2, Some(1.0)));
        assert_eq!(anna.wait_seconds, 4.0);
        let evaluated = (anna.evaluated_version, anna.accuracy, anna.evaluation_loss);
        assert_eq!(evaluated, (1, Some(0.75), Some(0.5)));
        let late = &report.participations[2];
        assert_eq!((late.client.as_str(), late.asked, late.updated), ("carl", true, false));
        assert_eq!((report.run.opened_ms, report.run.until_ms), (10_000, 23_000));
    }

    #[test]
    fn bytes_are_booked_to_who_moved_them_and_compared_with_the_meter_round_by_round() {
        let flow = |up| Flow {
            socket_up: up,
            transport_up: up,
            ..Flow::default()
        };
        let client = |round, name: &str, up| Row::Client {
            round,
            client: name.parse().ok(),
            flow: flow(up),
        };
        let meter = |round, read| Row::Meter {
            round,
            read,
            written: 0,
        };
        let section = Section {
            first: 1,
            tensors: 1,
            parameters: 50,
            frames: 2,
            values: 10,
            nonzeros: 25,
            ranked: 2,
            ranks: 6,
            ..Section::default()
        };
        let sections = Row::Sections {
            round: 1,
            direction: Direction::Up,
            sections: vec![section],
        };
        let rows = [
            client(1, "anna", 10),
            client(1, "", 5),
            client(2, "anna", 7),
            meter(1, 15),
        ];
        // Two updates before a restart, one after it.
        let fidelity = |frames: u64, least: i16| Row::Fidelity {
            round: 1,
            direction: Direction::Up,
            sections: vec![Fidelity {
                first: 1,
                frames,
                cosine: 500 * frames as i64,
                least_cosine: least,
                kept: 250 * frames as i64,
                least_kept: least,
                age: 3,
                oldest: 3,
            }],
        };
        let more = [sections, fidelity(2, 20), fidelity(1, 400), meter(2, 7)];
        // What is missing in one round and too much in another is equal in all, and yet wrong.
        let report = report(&records(), rows.into_iter().chain(more));
        assert!(report.balanced && report.rounds.iter().all(|line| line.balanced));
        assert_eq!(report.clients[0].client, "-");
        assert_eq!((report.totals.socket_up, report.metered_up), (22, 22));
        let tensor = &report.tensors[0];
        assert_eq!(
            (tensor.tensor.as_str(), tensor.density, tensor.rank),
            ("b", Some(0.25), Some(3.0))
        );
        assert_eq!(tensor.bits, Some(0.8));
        assert_eq!(
            tensor.fidelity,
            Figures {
                figures: 3,
                cosine: Some(0.5),
                cosine_least: Some(0.02),
                kept: Some(0.25),
                kept_least: Some(0.02),
                age: Some(2.0),
                age_most: Some(3.0),
            }
        );
        let rows = [client(1, "anna", 10), client(2, "anna", 7), meter(1, 7), meter(2, 10)];
        let report = self::report(&records(), rows);
        assert!(!report.balanced && report.rounds.iter().all(|line| !line.balanced));
    }
}
