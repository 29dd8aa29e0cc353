//! Tensors over all rounds.

use std::collections::BTreeMap;

use crate::columns::line;
use crate::lines::TensorLine;

line! {
    /// One section of the frames of all rounds in one direction: a tensor, or small tensors coded together.
    pub struct TensorTotal {
        /// `up` for the updates, `down` for the steps.
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
        /// Share of all sections' bytes in its direction.
        share: Option<f64> [""],
        /// Share of its parameters that are not zero, over all frames.
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

/// A mean whose weights are summed as it goes.
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

/// Lines added up over rounds: the updates' first, in the order in which their tensors first stand in a frame.
pub(crate) fn totals(lines: &[TensorLine]) -> Vec<TensorTotal> {
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut sums: Vec<Sum> = Vec::new();
    for line in lines {
        let place = *places.entry((&line.direction, &line.tensor)).or_insert(sums.len());
        if place == sums.len() {
            sums.push(Sum::default());
        }
        if let Some(sum) = sums.get_mut(place) {
            add(sum, line);
        }
    }
    let all = |direction: &str| -> f64 {
        let of = lines.iter().filter(|line| line.direction == direction);
        of.map(|line| line.bytes as f64).sum()
    };
    let (up, down) = (all("up"), all("down"));
    let mut totals: Vec<TensorTotal> = sums
        .into_iter()
        .map(|sum| {
            let all = if sum.line.direction == "up" { up } else { down };
            let bytes = sum.line.bytes as f64;
            TensorTotal {
                share: (all > 0.0).then(|| bytes / all),
                density: sum.density.value(),
                rank: sum.rank.value(),
                bits: (sum.values > 0.0).then(|| 8.0 * bytes / sum.values),
                cosine: sum.cosine.value(),
                kept: sum.kept.value(),
                age: sum.age.value(),
                ..sum.line
            }
        })
        .collect();
    totals.sort_by_key(|line| line.direction != "up");
    totals
}

fn extreme(known: Option<f64>, more: Option<f64>, of: fn(f64, f64) -> f64) -> Option<f64> {
    known.zip(more).map(|(known, more)| of(known, more)).or(known).or(more)
}

fn add(sum: &mut Sum, line: &TensorLine) {
    let total = &mut sum.line;
    if total.tensor.is_empty() {
        total.direction.clone_from(&line.direction);
        total.tensor.clone_from(&line.tensor);
    }
    total.parameters = total.parameters.max(line.parameters);
    for (own, more) in [
        (&mut total.frames, line.frames),
        (&mut total.recipe_bytes, line.recipe_bytes),
        (&mut total.index_bytes, line.index_bytes),
        (&mut total.scale_bytes, line.scale_bytes),
        (&mut total.value_bytes, line.value_bytes),
        (&mut total.bytes, line.bytes),
        (&mut total.figures, line.figures),
    ] {
        *own = own.saturating_add(more);
    }
    let values = line.parameters as f64 * line.frames as f64;
    sum.values += values;
    sum.density.add(line.density, values);
    sum.rank.add(line.rank, line.frames as f64);
    let figures = line.figures as f64;
    sum.cosine.add(line.cosine, figures);
    sum.kept.add(line.kept, figures);
    sum.age.add(line.age, figures);
    total.cosine_least = extreme(total.cosine_least, line.cosine_least, f64::min);
    total.kept_least = extreme(total.kept_least, line.kept_least, f64::min);
    total.age_most = extreme(total.age_most, line.age_most, f64::max);
}
