//! Which tensors the bytes of the frames went to.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::queries::query::Query;
use crate::report::tensor::{Fidelity, SectionBytes, TensorLine};
use crate::table::Table;
use crate::table::line::line;
use crate::table::schema::Schema;

pub(super) static QUERY: Query = Query {
    name: "tensor",
    about: "a tensor, in each direction",
    schemas: &[
        Schema::of::<TensorTotal>("tensor", "One line per tensor and direction, over all rounds."),
        Schema::of::<TensorLine>(
            "tensor of a round",
            "One line per tensor and direction of one round: `--by tensor --round R`, and `tensors` of the JSON.",
        ),
    ],
    answer: |report, filter| match filter.round {
        _ if filter.client.is_some() => Err(Error::NotKept(
            "tensors are not kept per client: ask by tensor without a client, or for the client by stage",
        )),
        Some(_) => Ok(Table::of(
            report.tensors.iter().filter(|line| filter.has_round(line.round)),
        )),
        None => Ok(Table::of(totals(&report.tensors).iter())),
    },
};

line! {
    /// One section of the frames of all rounds in one direction.
    pub struct TensorTotal {
        /// `up` for the updates, `down` for the model updates.
        direction: String [""],
        /// The tensor's name; of tensors coded together, their number.
        tensor: String [""],
        /// Parameters of the section.
        parameters: u64 [""],
        /// Bytes by part.
        section: SectionBytes [],
        /// Share of the bytes of all sections in the same direction.
        share: Option<f64> [""],
        /// Share of nonzero parameters, over all frames.
        density: Option<f64> [""],
        /// Mean rank, if the section was sent as factors or with components split off.
        rank: Option<f64> [""],
        /// Bits per parameter.
        bits: Option<f64> ["bit"],
        /// Fidelity of the frames.
        fidelity: Fidelity [],
    }
}

/// A weighted mean.
#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

#[derive(Default)]
struct Sum {
    line: TensorTotal,
    values: f64,
    density: Mean,
    rank: Mean,
    cosine: Mean,
    kept: Mean,
    age: Mean,
}

/// Adds up lines over rounds: updates first, tensors in the order in which they first occur in a frame.
fn totals(lines: &[TensorLine]) -> Vec<TensorTotal> {
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut sums: Vec<Sum> = Vec::new();
    for line in lines {
        let place = *places.entry((&line.direction, &line.tensor)).or_insert(sums.len());
        if place == sums.len() {
            sums.push(Sum::default());
        }
        if let Some(sum) = sums.get_mut(place) {
            sum.add(line);
        }
    }
    let all = |direction: &str| -> f64 {
        let of = lines.iter().filter(|line| line.direction == direction);
        of.map(|line| line.section.bytes as f64).sum()
    };
    let (up, down) = (all("up"), all("down"));
    let mut totals: Vec<TensorTotal> = sums.into_iter().map(|sum| sum.total(up, down)).collect();
    totals.sort_by_key(|line| line.direction != "up");
    totals
}

impl Sum {
    fn add(&mut self, line: &TensorLine) {
        let total = &mut self.line;
        if total.tensor.is_empty() {
            total.direction.clone_from(&line.direction);
            total.tensor.clone_from(&line.tensor);
        }
        total.parameters = total.parameters.max(line.parameters);
        total.section.add(&line.section);
        let values = line.parameters as f64 * line.section.frames as f64;
        self.values += values;
        self.density.add(line.density, values);
        self.rank.add(line.rank, line.section.frames as f64);
        let own = &mut total.fidelity;
        let more = &line.fidelity;
        own.figures = own.figures.saturating_add(more.figures);
        let figures = more.figures as f64;
        self.cosine.add(more.cosine, figures);
        self.kept.add(more.kept, figures);
        self.age.add(more.age, figures);
        own.cosine_least = extreme(own.cosine_least, more.cosine_least, f64::min);
        own.kept_least = extreme(own.kept_least, more.kept_least, f64::min);
        own.age_most = extreme(own.age_most, more.age_most, f64::max);
    }

    /// The line of these sums. `up`, `down`: the bytes of all sections in each direction.
    fn total(self, up: f64, down: f64) -> TensorTotal {
        let bytes = self.line.section.bytes as f64;
        let all = if self.line.direction == "up" { up } else { down };
        TensorTotal {
            share: (all > 0.0).then(|| bytes / all),
            density: self.density.value(),
            rank: self.rank.value(),
            bits: (self.values > 0.0).then(|| 8.0 * bytes / self.values),
            fidelity: Fidelity {
                cosine: self.cosine.value(),
                kept: self.kept.value(),
                age: self.age.value(),
                ..self.line.fidelity
            },
            ..self.line
        }
    }
}

fn extreme(known: Option<f64>, more: Option<f64>, of: fn(f64, f64) -> f64) -> Option<f64> {
    known.zip(more).map(|(known, more)| of(known, more)).or(known).or(more)
}
