//! What each stage of compression made of the bytes, and what was sent.

use crate::queries::filter::Filter;
use crate::queries::query::Query;
use crate::report::Report;
use crate::report::stages::StageBytes;
use crate::table::Table;
use crate::table::column::Value;
use crate::table::line::line;
use crate::table::schema::Schema;

pub(super) static QUERY: Query = Query {
    name: "stage",
    about: "a stage of compression, in each direction",
    schemas: &[Schema::of::<StageLine>("stage", "One line per direction and stage.")],
    answer: |report, filter| Ok(Table::of(stages(report, filter).iter())),
};

line! {
    /// Bytes after one stage, in one direction.
    pub struct StageLine {
        /// `up` for the updates, `down` for the model updates.
        direction: String [""],
        /// `fp32`, `reduced`, `quantized` (the last two only if they are no larger than the stage before), `coded`, `framed`; `bound`, the order-0 entropy, which only context coding can go below; `sent`, all frames on the sockets: refused ones, model updates to every client, and snapshots too.
        stage: String [""],
        /// Bytes.
        bytes: f64 ["B"],
        /// Share of the same values at 4 bytes each; for `sent` down, of a model at 4 bytes per value for every client asked.
        share: Option<f64> [""],
        /// Bytes per parameter.
        bytes_per_parameter: Option<f64> ["B/parameter"],
    }
}

/// Stages before coding, when an index still counts 4 bytes. Such a stage can be larger than the one before it, and is left
/// out then: nothing sends it, and it would read as compression that expands.
const BEFORE_CODING: [&str; 2] = ["reduced", "quantized"];

pub(crate) fn stages(report: &Report, filter: &Filter) -> Vec<StageLine> {
    let mut up = StageBytes::default();
    let mut down = None;
    let asked: u64;
    if filter.client.is_some() {
        let lines = filter.participations(report);
        asked = lines.clone().filter(|line| line.asked).count() as u64;
        lines.for_each(|line| up.add(&line.stages));
    } else {
        let lines = filter.rounds(report);
        // The model update of an open round has not reached all clients yet.
        asked = lines.clone().filter(|line| line.closed).map(|line| line.asked).sum();
        let mut sum = StageBytes::default();
        for line in lines {
            up.add(&line.up);
            sum.add(&line.down);
        }
        down = Some(sum);
    }
    let flow = filter.flow(report);
    let mut out = Vec::new();
    push(&mut out, "up", Some(&up), flow.frames_up(), up.fp32 as f64);
    let whole = 4.0 * report.run.parameters as f64 * asked as f64;
    // All clients get the same model updates: for one client there are only the bytes that were sent to it.
    push(&mut out, "down", down.as_ref(), flow.frames_down(), whole);
    out
}

fn push(out: &mut Vec<StageLine>, direction: &str, stages: Option<&StageBytes>, sent: u64, whole: f64) {
    if let Some(stages) = stages {
        let fp32 = stages.fp32 as f64;
        let mut least = fp32;
        for (column, value) in Table::of([stages].into_iter()).row(0) {
            let bytes = match value {
                Value::Integer(bytes) => bytes as f64,
                Value::Number(bytes) => bytes,
                _ => continue,
            };
            if BEFORE_CODING.contains(&&*column.name) {
                if bytes > least {
                    continue;
                }
                least = bytes;
            }
            out.push(line(direction, &column.name, bytes, fp32));
        }
    }
    out.push(line(direction, "sent", sent as f64, whole));
}

fn line(direction: &str, stage: &str, bytes: f64, fp32: f64) -> StageLine {
    let share = (fp32 > 0.0).then(|| bytes / fp32);
    StageLine {
        direction: direction.to_owned(),
        stage: stage.to_owned(),
        bytes,
        share,
        bytes_per_parameter: share.map(|share| 4.0 * share),
    }
}

/// Says which stages are left out and why, as a sentence; empty if all are there.
pub(crate) fn note(lines: &[StageLine]) -> String {
    let has = |direction: &str, stage: &str| {
        let mut lines = lines.iter();
        lines.any(|line| line.direction == direction && line.stage == stage)
    };
    let directions = ["up", "down"].into_iter().filter(|direction| has(direction, "fp32"));
    let missing: Vec<String> = directions
        .flat_map(|direction| BEFORE_CODING.map(|stage| (stage, direction)))
        .filter(|(stage, direction)| !has(direction, stage))
        .map(|(stage, direction)| format!("{stage} ({direction})"))
        .collect();
    if missing.is_empty() {
        return String::new();
    }
    format!(
        "Left out: {}. Before coding, an index counts 4 bytes, so this form, which is never sent, is larger than the stage \
         before it.\n",
        missing.join(", ")
    )
}
