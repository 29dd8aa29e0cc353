//! Values by a threshold on their magnitude, instead of by rank.
//!
//! A fixed threshold keeps `|v| >= t` (Strom 2015, section 3; AdaComp and the dead zone build on it): every unsent value
//! is below `t`, but nothing is sent, and no `delta` above zero holds, if all are.
//!
//! A sampled threshold approximates top-k without an exact selection (Deep Gradient Compression, Lin et al. 2018, section
//! 3.1 and appendix; refined as in GRACE, Xu et al. 2021): the threshold that the wanted share of a sample of 1 % reaches,
//! then at most 10 times 1.3 or 0.7 times that until 0.7 to 1.3 of the wanted `k` pass. With `k'` values kept, `delta = k' / n`
//! as for top-k, of which it is the exact selection of `k'` values.

use serde::{Deserialize, Serialize};

use crate::density::Density;
use crate::error::Error;
use crate::finite::magnitude;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::reduce::keyed::keyed;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::support;
use crate::reduce::top_k::{above, magnitude_of, reaching};
use crate::rng::KeyedRng;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;

// One value of this many is sampled: DGC (Lin et al. 2018) samples 0.1 to 1 %.
const STRIDE: usize = 100;
const LEAST_SAMPLE: usize = 4096;
// Refinements of the threshold, as in GRACE's DGC.
const ROUNDS: usize = 10;

/// A magnitude to reach: `0.001`, or `{ sampled = 0.01 }`, the magnitude that about this share reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// The magnitude itself.
    Fixed(f32),
    /// Found from a sample.
    Sampled(Density),
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "threshold",
        about: "The values that reach a magnitude, given or found from a sample, with their places.",
        examples: &["{ threshold = 0.5 }", "{ threshold = { sampled = 0.2 } }"],
        leaves_out: true,
    },
    form: &support::FORM,
    stream: 5,
};

impl Reducer for Threshold {
    fn choose(&self, tensor: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        match *self {
            Self::Fixed(threshold) => reaching(threshold, 0, None),
            Self::Sampled(density) => {
                let k = density.count(tensor.values.len());
                support::chosen(Sends::Other, None, move |tensor| sampled(tensor.values, k, tensor.rng))
            }
        }
    }
}

short_forms!(Threshold);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    sampled: Density,
}

impl Short for Threshold {
    const FORMS: &'static str = "a magnitude above 0, or { sampled = density }";
    type Table = Table;

    fn from_number(number: f64) -> Result<Self, Error> {
        let threshold = number as f32;
        if threshold > 0.0 && threshold.is_finite() {
            return Ok(Self::Fixed(threshold));
        }
        Err(Error::Usage(format!(
            "a threshold is a magnitude above 0, not {number}"
        )))
    }

    fn from_table(Table { sampled }: Table) -> Result<Self, Error> {
        Ok(Self::Sampled(sampled))
    }

    fn parts(&self) -> Result<f64, Table> {
        match *self {
            // The shortest decimal that is this f32, not the f64 it widens to.
            Self::Fixed(threshold) => Ok(threshold.to_string().parse().unwrap_or(f64::from(threshold))),
            Self::Sampled(sampled) => Err(Table { sampled }),
        }
    }
}

/// Ascending indices of about `k` values of the largest magnitudes: of all that reach a threshold, not one of them zero.
/// At least one if any is not zero.
pub(crate) fn sampled(values: &[f32], k: usize, rng: KeyedRng) -> Vec<u32> {
    let wanted = k.max(1) as f64;
    let mut threshold = f32::from_bits(estimate(values, k, rng));
    let mut best = (f64::INFINITY, threshold);
    for round in 0..=ROUNDS {
        let share = count(magnitude_of(threshold), values) as f64 / wanted;
        let off = share.max(1.0 / share);
        if off < best.0 {
            best = (off, threshold);
        }
        if round == ROUNDS || (0.7..=1.3).contains(&share) {
            break;
        }
        threshold *= if share > 1.0 { 1.3 } else { 0.7 };
    }
    above(values, best.1)
}

/// Bits of the magnitude that the wanted share of a sample reaches.
fn estimate(values: &[f32], k: usize, rng: KeyedRng) -> u32 {
    let rng = keyed(rng, METHOD.stream);
    let len = values.len();
    let size = (len / STRIDE).max(LEAST_SAMPLE);
    let mut sample: Vec<u32> = if size >= len {
        values.iter().map(|&value| magnitude(value)).collect()
    } else {
        let stride = len / size;
        (0..size)
            .map(|i| magnitude(values[i * stride + rng.bits(i) as usize % stride]))
            .collect()
    };
    if sample.is_empty() {
        return 1;
    }
    let rank = (k as f64 * sample.len() as f64 / len as f64).round() as usize;
    let rank = rank.clamp(1, sample.len()) - 1;
    let (_, &mut magnitude, _) = sample.select_nth_unstable_by(rank, |a, b| b.cmp(a));
    magnitude.max(1)
}

#[inline(never)]
fn count(threshold: u32, values: &[f32]) -> usize {
    let below = threshold as i32 - 1;
    // Short runs, so that a lane of 32 bits can count them.
    let run = |run: &[f32]| -> u32 { run.iter().map(|&v| u32::from(magnitude(v) as i32 > below)).sum() };
    values.chunks(1024).map(|values| run(values) as usize).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::top_k::top_k;

    fn laplace(len: usize) -> Vec<f32> {
        let rng = KeyedRng::new(4, 4);
        (0..len)
            .map(|i| (1.0 - rng.unit(i)).ln() * if rng.bits(i) & 1 == 0 { 1.0 } else { -1.0 })
            .collect()
    }

    #[test]
    fn fixed_keeps_what_reaches_it_but_no_zero() {
        let values = [0.9, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6];
        assert_eq!(above(&values, 0.5), [0, 1, 7]);
        assert_eq!(above(&values, 0.0), [0, 1, 2, 3, 4, 6, 7]);
        assert_eq!(above(&values, -1.0), above(&values, 0.0));
        assert!(above(&values, 1.0).is_empty());
        assert!(above(&values, f32::INFINITY).is_empty());
        assert!(above(&values, f32::NAN).is_empty());
        assert!(above(&[], 0.0).is_empty());
    }

    #[test]
    fn sampled_keeps_about_k_and_exactly_those() {
        for len in [1, 2, 1000, 50_000, 600_000] {
            let values = laplace(len);
            for k in [1, len / 1000, len / 100, len / 10, len / 2, len] {
                let kept = sampled(&values, k, KeyedRng::new(1, 1));
                let share = kept.len() as f64 / k.max(1) as f64;
                assert!((0.7..=1.3).contains(&share) || k < 20, "{k} of {len}: {share}");
                assert_eq!(kept, top_k(1, &values, kept.len()), "the largest");
                assert!(!kept.is_empty());
            }
        }
    }

    #[test]
    fn sampled_ends_on_awkward_values() {
        let rng = KeyedRng::new(2, 2);
        assert!(sampled(&[], 3, rng).is_empty());
        assert!(sampled(&[0.0; 9000], 3, rng).is_empty());
        assert_eq!(sampled(&[1.0; 9000], 3, rng).len(), 9000, "equals are not told apart");
        let mut spike = vec![0.0; 9000];
        spike[8999] = -1e38;
        assert_eq!(sampled(&spike, 30, rng), [8999]);
        let steep: Vec<f32> = (0..9000).map(|i| if i == 77 { f32::MAX } else { 1e-45 }).collect();
        assert!(!sampled(&steep, 1, rng).is_empty());
    }
}
