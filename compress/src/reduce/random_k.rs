//! Random places that both sides draw from the frame's seed, so that no index is sent (random-k; Stich, Cordonnier and
//! Jaggi 2018, section 2; Konečný et al. 2016, "random mask").
//!
//! The places are the first `k` of a keyed pseudorandom permutation of `0..n`: a Feistel network over the smallest
//! domain of an even number of bits that holds `n`, walked until it is back below `n` (Black and Rogaway 2002, "cycle
//! walking"). Place `j` is computed by itself and nothing is stored.
//!
//! The network: halves of `h` bits, `h = max(1, ceil(ceil(log2 n) / 2))`, the left one higher; in round r of `max(6, 24
//! / h)`, `(left, right) = (right, left ^ (KeyedRng::new(key.bits(r), r).bits(right) mod 2^h))`.
//!
//! With `k` of `n` values kept: times `n / k` it is unbiased with `omega = n / k - 1`; unscaled, as error feedback
//! wants it, contractive with `delta = k / n`, both exact and in expectation over seeds.

use crate::density::{Density, DensityTable};
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::layout::Shape;
use crate::reduce::form::{Form, K, Numbers, Part, Reduction};
use crate::reduce::keyed::keyed;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::planes::{BLOCK, Planes};
use crate::rng::KeyedRng;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::sink::Sink;

// Rounds of a network whose halves have four bits or more. Smaller halves need more rounds to mix: rounds times bits of
// a half is then 24, as with four bits.
const ROUNDS: usize = 6;
const MOST_ROUNDS: usize = 24;

/// Random places, which the seed gives: `0.01`. Without memory the values are scaled up, so that the expectation is the
/// update itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomK {
    /// Share of values sent.
    pub density: Density,
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "random_k",
        about: "Values at random places, which the frame's seed gives.",
        examples: &["{ random_k = 0.2 }"],
        leaves_out: true,
    },
    form: &Form {
        tag: 3,
        second: Some(0),
        numbers: &[K],
        words: |[k, ..], len| format!("random {k} of {len}"),
        parts: |[k, ..], _| vec![Part::plain(1, k as usize)],
        decode,
    },
    stream: 1,
};

impl Reducer for RandomK {
    fn choose(&self, tensor: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        let len = tensor.values.len();
        let k = self.density.count(len);
        let scale = if tensor.unbiased { len as f32 / k as f32 } else { 1.0 };
        ReducerChoice::new(Sends::Other, move |TensorValues { values, rng, .. }, _| {
            let mut places = vec![0; k];
            Places::new(*rng, len).fill(0, &mut places);
            let sent: Vec<f32> = places.iter().map(|&place| values[place as usize] * scale).collect();
            Ok(Reduction::plain(METHOD.form, [k as u32, 0, 0, 0], sent, Shape::row(k)))
        })
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        Some(vec![Part::plain(1, self.density.count(shape.len()))])
    }
}

fn decode(_: Numbers, planes: &Planes<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let places = Places::new(planes.rng, planes.shape.len());
    let part = planes.part(0)?;
    let mut indices = vec![0; BLOCK.min(part.count)];
    part.blocks(|start, block| {
        let indices = &mut indices[..block.len()];
        places.fill(start, indices);
        sink.sparse(0, indices, block);
        Ok(())
    })
}

short_forms!(RandomK);

impl Short for RandomK {
    const FORMS: &'static str = "a density above 0 and at most 1";
    type Table = DensityTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        Density::new(number).map(|density| Self { density })
    }

    fn from_table(DensityTable { density }: DensityTable) -> Result<Self, Error> {
        Ok(Self { density })
    }

    fn parts(&self) -> Result<f64, DensityTable> {
        Ok(self.density.into())
    }
}

/// A random order of `0..n`. The places are distinct and not ascending.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    n: u64,
    half: u32,
    /// Round functions; those of `rounds` are used.
    keys: [KeyedRng; MOST_ROUNDS],
    rounds: usize,
}

impl Places {
    /// The order of `0..n` that `draws` gives; `n` is at most `u32::MAX`.
    pub(crate) fn new(rng: KeyedRng, n: usize) -> Self {
        let rng = keyed(rng, METHOD.stream);
        let half = (n as u64).next_power_of_two().ilog2().div_ceil(2).max(1);
        Self {
            n: n as u64,
            half,
            keys: std::array::from_fn(|round| KeyedRng::new(rng.bits(round), round)),
            // Small halves have few functions to draw from, and need more rounds to mix as well.
            rounds: ROUNDS.max(MOST_ROUNDS / half as usize),
        }
    }

    /// Places `start..start + out.len()`, all of which are below `n`.
    #[inline(never)]
    pub(crate) fn fill(&self, start: usize, out: &mut [u32]) {
        debug_assert!(start + out.len() <= self.n as usize);
        for (j, place) in (start as u64..).zip(out) {
            *place = self.place(j) as u32;
        }
    }

    fn place(&self, j: u64) -> u64 {
        let mut x = self.permute(j);
        // Ends because the walk is a cycle through j, which is below n. If j is not, one step must do.
        while x >= self.n && j < self.n {
            x = self.permute(x);
        }
        x
    }

    fn permute(&self, x: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let mut left = x >> self.half;
        let mut right = x & mask;
        for key in &self.keys[..self.rounds] {
            (left, right) = (right, left ^ key.bits(right as usize) & mask);
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(k: usize, seed: u64, n: usize) -> Vec<u32> {
        let mut out = vec![0; k];
        Places::new(KeyedRng::new(seed, 0), n).fill(0, &mut out);
        out
    }

    #[test]
    fn every_length_is_permuted() {
        for n in 1..3000 {
            let mut seen = vec![false; n];
            for place in first(n, n as u64, n) {
                assert!(!std::mem::replace(&mut seen[place as usize], true), "{n}");
            }
        }
    }

    #[test]
    fn portions_do_not_matter() {
        let places = Places::new(KeyedRng::new(3, 1), 100_003);
        let (mut whole, mut parts) = ([0; 1000], [0; 1000]);
        places.fill(0, &mut whole);
        for (at, part) in parts.chunks_mut(7).enumerate() {
            places.fill(at * 7, part);
        }
        assert_eq!(whole, parts);
    }

    #[test]
    fn the_largest_length_stays_in_range() {
        let n = u32::MAX as usize;
        let places = Places::new(KeyedRng::new(3, 1), n);
        let mut last = [0; 100];
        places.fill(n - 100, &mut last);
        assert!(last.iter().all(|&place| (place as usize) < n));
    }

    /// Chi-square of `counts` against equal shares, as standard deviations from its mean.
    fn surprise(counts: &[u32]) -> f64 {
        let freedom = counts.len() as f64 - 1.0;
        let share = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - share).powi(2) / share).sum();
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn places_and_pairs_of_places_are_uniform_over_seeds() {
        for n in [2, 3, 4, 5, 7, 12, 16, 17, 30] {
            let pairs = n * (n - 1);
            let mut one = vec![0; n];
            let mut last = vec![0; n];
            let mut two = vec![0; n * n];
            let mut far = vec![0; n * n];
            for seed in 0..(pairs as u64 * 60).max(4000) {
                let places = first(n, seed, n);
                let (a, b, z) = (places[0] as usize, places[1] as usize, places[n - 1] as usize);
                one[a] += 1;
                last[z] += 1;
                two[a * n + b] += 1;
                far[a * n + z] += 1;
            }
            for counts in [&mut two, &mut far] {
                let distinct = |at: &usize| at / n != at % n;
                *counts = (0..n * n).filter(distinct).map(|at| counts[at]).collect();
            }
            for counts in [one, last, two, far] {
                let surprise = surprise(&counts);
                assert!(surprise < 5.0, "{n}: {surprise}");
            }
        }
    }

    #[test]
    fn scaled_it_has_no_bias_and_an_error_of_omega() {
        const DRAWS: u32 = 4000;
        let (n, k) = (50, 5);
        let values: Vec<f64> = (0..n).map(|i| (i as f64 - 20.3) / 7.0).collect();
        let energy: f64 = values.iter().map(|v| v * v).sum();
        let omega = n as f64 / k as f64 - 1.0;
        let mut mean = vec![0.0; n];
        let mut error = 0.0;
        for seed in 0..DRAWS {
            let mut decoded = vec![0.0; n];
            for place in first(k, u64::from(seed), n) {
                decoded[place as usize] = values[place as usize] * n as f64 / k as f64;
            }
            let off = values.iter().zip(&decoded).map(|(v, d)| (v - d).powi(2)).sum::<f64>();
            error += off / f64::from(DRAWS);
            mean.iter_mut()
                .zip(decoded)
                .for_each(|(m, d)| *m += d / f64::from(DRAWS));
        }
        for (mean, value) in mean.iter().zip(&values) {
            let deviation = value.abs() * omega.sqrt();
            assert!((mean - value).abs() <= 5.0 * deviation / f64::from(DRAWS).sqrt());
        }
        assert!(
            (error / (omega * energy) - 1.0).abs() < 0.05,
            "{error} {}",
            omega * energy
        );
    }
}
