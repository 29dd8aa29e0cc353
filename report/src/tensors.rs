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
                ..sum.line
            }
        })
        .collect();
    totals.sort_by_key(|line| line.direction != "up");
    totals
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
    ] {
        *own = own.saturating_add(more);
    }
    let values = line.parameters as f64 * line.frames as f64;
    sum.values += values;
    sum.density.add(line.density, values);
    sum.rank.add(line.rank, line.frames as f64);
}
