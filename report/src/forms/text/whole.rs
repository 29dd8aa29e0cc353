//! The whole report on one page.

use std::fmt::Write as _;

use crate::forms::text::{costs, time};
use crate::queries::direction::directions;
use crate::queries::filter::Filter;
use crate::queries::stage::{note, stages};
use crate::report::Report;
use crate::report::flow::Flow;
use crate::report::notes::notes;
use crate::report::round::RoundLine;
use crate::report::run::Baseline;
use crate::table::Table;
use crate::table::column::Column;
use crate::table::sums::sum;
use crate::text::grid::Grid;
use crate::text::number::{count, digits, escaped, figure, moment, name, percent, size, span};
use crate::text::table;

/// The verdict on a ledger that does not equal the meter.
const UNBALANCED: &str = "NOT EQUAL: bytes are unaccounted for";

/// Formats a report for a person.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    cost(&mut out, report);
    save(&mut out, report);
    let mut rounds = Table::of(report.rounds.iter());
    let metrics = rounds
        .columns
        .extract_if(.., |column| column.name.contains('/'))
        .collect();
    section(&mut out, "Rounds", &rounds);
    if !report.rounds.is_empty() {
        total(&mut out, report);
        outside(&mut out, report);
        self::metrics(&mut out, report, metrics);
        work(&mut out, report);
    }
    section(&mut out, "Clients", &Table::of(report.clients.iter()));
    baselines(&mut out, report);
    if let Some(costs) = &report.costs {
        costs::write(&mut out, costs);
    }
    ledger(&mut out, report);
    out
}

/// Columns of metrics that a line of a terminal has room for.
const METRICS: usize = 8;

/// The metrics of the learners, round by round.
fn metrics(out: &mut String, report: &Report, mut metrics: Vec<Column>) {
    if metrics.is_empty() {
        return;
    }
    let more = metrics.split_off(metrics.len().min(METRICS));
    let mut table = Table::select(report.rounds.iter(), &["round"]);
    table.columns.extend(metrics);
    section(out, "Metrics: means over the clients that report them", &table);
    if !more.is_empty() {
        let names: Vec<&str> = more.iter().map(|column| &*column.name).collect();
        let _ = writeln!(out, "Not shown here, but with `--by round`: {}", names.join(", "));
    }
}

/// The largest costs.
fn save(out: &mut String, report: &Report) {
    if report.savings.is_empty() {
        return;
    }
    out.push_str("\nWhere to save: the largest costs\n");
    for line in &report.savings {
        let share = line
            .share
            .map_or_else(String::new, |share| format!(", {}", percent(share)));
        let _ = writeln!(
            out,
            "{}: {}{share}. {} {}",
            name(&line.cost),
            size(line.bytes as f64),
            line.why,
            line.change
        );
    }
}

/// What the bytes and the time of the rounds were spent on.
fn work(out: &mut String, report: &Report) {
    let all = Filter::default();
    let lines = stages(report, &all);
    section(out, "Stages: what each made of the bytes", &Table::of(lines.iter()));
    out.push_str(&note(&lines));
    section(
        out,
        "Directions: what the bytes on the sockets were for",
        &Table::of(directions(report, &all).iter().filter(|line| line.bytes > 0)),
    );
    out.push_str("\nTime: where it went\n");
    time::write(out, report);
}

fn section(out: &mut String, title: &str, table: &Table) {
    let _ = writeln!(out, "\n{title}");
    if table.is_empty() {
        out.push_str("none yet\n");
    } else {
        table::write(out, table);
    }
}

fn head(out: &mut String, report: &Report) {
    let run = &report.run;
    let parameters = count(run.parameters);
    let _ = writeln!(
        out,
        "Run {} (task {}): {}; {} rounds planned, {parameters} parameters",
        name(&run.name),
        name(&run.task),
        name(&run.state),
        run.planned,
    );
    if run.opened_ms > 0 {
        let took = run.until_ms.saturating_sub(run.opened_ms) as f64 / 1000.0;
        let _ = writeln!(
            out,
            "Opened {}; {} to the newest record",
            moment(run.opened_ms),
            span(took)
        );
    }
    let _ = writeln!(out, "Model version {}, digest {}\n", run.version, run.model);
    if !report.settings.words.is_empty() {
        let words = report.settings.words.iter();
        let (names, values) = words.map(|(name, value)| (name.clone(), escaped(value))).unzip();
        let mut grid = Grid::default();
        grid.column("Settings", true, names);
        grid.column("`--plan` prints the whole run.toml", true, values);
        grid.write(out);
    }
}

/// What the run cost and gained, in one or two sentences.
fn cost(out: &mut String, report: &Report) {
    let totals = &report.totals;
    let _ = write!(
        out,
        "\nIt moved {} ({} up, {} down) in {} with {}",
        size(totals.socket() as f64),
        size(totals.socket_up as f64),
        size(totals.socket_down as f64),
        plural(report.rounds.len(), "round"),
        plural(
            report.clients.iter().filter(|line| line.client != "-").count(),
            "client"
        ),
    );
    let _ = match (report.accuracy(), report.perplexity().map(figure)) {
        (Some(accuracy), None) => writeln!(out, " and reached an accuracy of {accuracy:.4}."),
        (None, Some(perplexity)) => writeln!(out, " and reached a perplexity of {perplexity}."),
        (Some(accuracy), Some(perplexity)) => writeln!(
            out,
            " and reached an accuracy of {accuracy:.4} where the model classifies, and a perplexity of {perplexity}."
        ),
        (None, None) => writeln!(out, "."),
    };
    if let Some(base) = report.baseline("fedavg-fp32").filter(|base| base.socket_ratio > 0.0) {
        let closed = report.closed().count() as u64;
        let mut rounds = "the same cohorts".to_owned();
        let mut bound = "";
        if base.through < closed || closed < report.rounds.len() as u64 {
            rounds = format!("the first {}", plural(base.through as usize, "round"));
            bound = "at least ";
        }
        // Bytes that a killed server had moved are missing on the run's side.
        if report.rounds.iter().any(|line| line.unbooked > 0) {
            bound = "at most ";
        }
        let _ = writeln!(
            out,
            "For {rounds}, fp32 federated averaging would have moved {} of payload alone, {bound}{} times as much.",
            size(base.up.saturating_add(base.down) as f64),
            digits(base.socket_ratio)
        );
    }
    for note in notes(report) {
        let _ = writeln!(out, "{note}");
    }
    if !report.balanced {
        let _ = writeln!(out, "The ledger and the sockets are {UNBALANCED}; see the end.");
    }
}

fn plural(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn total(out: &mut String, report: &Report) {
    let updates: u64 = report.rounds.iter().map(|line| line.updates).sum();
    let totals = &report.totals;
    let waste = match totals.frames_up() {
        0 => 0.0,
        all => totals.waste() as f64 / all as f64,
    };
    let _ = writeln!(
        out,
        "In all {} with {} of frames up and {} down; {} of the frames up was of no use ({}); {}, {}.",
        plural(usize::try_from(updates).unwrap_or(usize::MAX), "update"),
        size(totals.frames_up() as f64),
        size(totals.frames_down() as f64),
        size(totals.waste() as f64),
        percent(waste),
        plural(usize::try_from(totals.connections).unwrap_or(usize::MAX), "connection"),
        match totals.retries {
            1 => "1 upload resumed or sent again".to_owned(),
            retries => format!("{retries} uploads resumed or sent again"),
        }
    );
}

/// Bytes that are booked to rounds that never opened.
fn outside(out: &mut String, report: &Report) {
    let mut inside = Flow::default();
    report.rounds.iter().for_each(|line| inside.add(&line.flow));
    let rest = report.totals.since(&inside);
    if rest.socket() > 0 {
        let _ = writeln!(
            out,
            "Before the first round and after the last, {} went up and {} down.",
            size(rest.socket_up as f64),
            size(rest.socket_down as f64)
        );
    }
}

fn baselines(out: &mut String, report: &Report) {
    if report.baselines.is_empty() {
        return;
    }
    out.push_str("\nBaselines: the payload of other ways of training, for the same cohorts and rounds\n");
    let mut grid = Grid::default();
    let column = |value: &dyn Fn(&Baseline) -> String| report.baselines.iter().map(value).collect();
    grid.column("baseline", true, column(&|base| name(&base.name)));
    grid.column("up", false, column(&|base| size(base.up as f64)));
    grid.column("down", false, column(&|base| size(base.down as f64)));
    grid.column("x frames", false, column(&|base| digits(base.frames_ratio)));
    grid.column("x sockets", false, column(&|base| digits(base.socket_ratio)));
    grid.write(out);
    out.push_str(
        "Each sends a model down to every client asked, one up for every update, and one down to every client that \
         evaluated the last.\n",
    );
}

/// The numbers of the first rounds that meet a condition.
fn named(report: &Report, is_so: impl Fn(&RoundLine) -> bool) -> Option<String> {
    let rounds: Vec<String> = report
        .rounds
        .iter()
        .filter(|line| is_so(line))
        .map(|line| line.round.to_string())
        .collect();
    let shown = rounds.len().min(20);
    let more = if shown < rounds.len() { ", .." } else { "" };
    (shown > 0).then(|| format!("{}{more}", rounds[..shown].join(", ")))
}

fn ledger(out: &mut String, report: &Report) {
    let totals = &report.totals;
    let verdict = if report.balanced {
        "equal to the byte"
    } else {
        UNBALANCED
    };
    let _ = writeln!(
        out,
        "\nLedger {} B up, {} B down; sockets {} B up, {} B down: {verdict}.",
        count(totals.socket_up),
        count(totals.socket_down),
        count(report.metered_up),
        count(report.metered_down)
    );
    let pending = report.pending.socket();
    if pending > 0 {
        let _ = writeln!(
            out,
            "Of these, {} B are not on disk yet: the server writes them within seconds.",
            count(pending)
        );
    }
    if let Some(rounds) = named(report, |line| !line.balanced) {
        let _ = writeln!(out, "Rounds that are not equal: {rounds}");
    }
    if let Some(rounds) = named(report, |line| line.unbooked > 0) {
        let bytes = sum(report.rounds.iter().map(|line| line.unbooked));
        let _ = writeln!(
            out,
            "A server was killed in these rounds, and what its sockets had carried is in neither: {} of frames counted, and \
             all beside them. Rounds: {rounds}",
            size(bytes as f64)
        );
    }
    if !report.run.chain.is_empty() {
        let _ = writeln!(out, "Newest link of the chain of rounds: {}", report.run.chain);
    }
}
