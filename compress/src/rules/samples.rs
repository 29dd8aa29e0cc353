//! Test inputs of the rules, and a reference for the selection.

use crate::rng::KeyedRng;
use crate::rules::density::DensitySpec;
use crate::rules::selection::{RuleDecision, Selection};

// The tensor of the worked examples.
pub(crate) const G8: [f32; 8] = [0.9, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6];

/// The spec written as the TOML value `text`.
pub(crate) fn spec(text: &str) -> DensitySpec {
    #[derive(serde::Deserialize)]
    struct Doc {
        density: DensitySpec,
    }
    toml::from_str::<Doc>(&format!("density = {text}")).unwrap().density
}

/// Uniform in (0, 1).
fn unit(rng: KeyedRng, index: usize) -> f64 {
    ((rng.bits(index) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

pub(crate) fn laplace(len: usize, seed: u64) -> Vec<f32> {
    let rng = KeyedRng::new(seed, 1);
    let draws = (0..len).map(|i| {
        let sign = if rng.bits(i) & 1 == 0 { 1.0 } else { -1.0 };
        (sign * unit(rng, i).ln()) as f32
    });
    draws.collect()
}

/// The `at`-th normal draw (Box and Muller 1958).
fn normal(rng: KeyedRng, at: usize) -> f64 {
    (-2.0 * unit(rng, 2 * at).ln()).sqrt() * (std::f64::consts::TAU * unit(rng, 2 * at + 1)).cos()
}

pub(crate) fn gaussian(len: usize, seed: u64) -> Vec<f32> {
    (0..len).map(|i| normal(KeyedRng::new(seed, 2), i) as f32).collect()
}

/// Student's t with three degrees of freedom.
pub(crate) fn student(len: usize, seed: u64) -> Vec<f32> {
    let draws = (0..len).map(|i| {
        let [z, a, b, c] = [0, 1, 2, 3].map(|tensor| normal(KeyedRng::new(seed, 3 + tensor), i));
        (z / ((a * a + b * b + c * c) / 3.0).sqrt()) as f32
    });
    draws.collect()
}

/// Reference of the selection: sorts all magnitudes.
pub(crate) fn kept(values: &[f32], selected: RuleDecision) -> Vec<f32> {
    let mut order: Vec<usize> = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    order.sort_by(|&a, &b| values[b].abs().total_cmp(&values[a].abs()).then(a.cmp(&b)));
    let count = match selected.chosen {
        Selection::Count(k) | Selection::Weighted(k) => k,
        Selection::Reaching { threshold, least } => {
            least.max(order.iter().filter(|&&i| values[i].abs() >= threshold).count())
        }
    };
    let mut sent = vec![0.0; values.len()];
    for &i in order.iter().take(count) {
        let most = selected.clip.unwrap_or(f32::INFINITY);
        sent[i] = values[i].clamp(-most, most);
    }
    sent
}
