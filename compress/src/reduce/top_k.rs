//! The values largest in magnitude, by exact selection: one pass over the values and a guess that makes it cheap.
//!
//! A sample gives a threshold that a little more than `k` values should pass; one pass gathers those, and the exact
//! selection is made among them. If the guess was wrong (too few or far too many pass), the selection is made among all.

use serde::{Deserialize, Serialize};

use crate::density::Density;
use crate::error::Error;
use crate::finite::magnitude;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::layout::Shape;
use crate::reduce::form::Part;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::support;
use crate::rng::KeyedRng;
use crate::rules::density::DensitySpec;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::{RuleDecision, Selection};

// At a density of 1 %, 82 of the sample are expected to reach the threshold, with a deviation of 9: four deviations
// more are half as many candidates again.
const SAMPLE: usize = 8 * 1024;
// Values tested at a time; a group without a candidate costs no more than the test.
const GROUP: usize = 16;
// Values gathered at a time, in cache.
const BLOCK: usize = 1024;
// Buckets of the histogram that narrows a selection.
const BUCKETS: usize = 1024;
// Half an octave of the bits of a magnitude (an exponent is `1 << 23`): a quarter to a half less.
const QUARTER: u32 = 1 << 22;

/// The largest magnitudes: `0.01` or `{ density = 0.01, chunk = 4096 }`.
#[derive(Debug, Clone, PartialEq)]
pub struct TopK {
    /// Share of values kept, or a rule that chooses it.
    pub density: DensitySpec,
    /// Values among which the largest are looked for; by default the whole tensor.
    pub chunk: Option<u32>,
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "top_k",
        about: "The values largest in magnitude, of the tensor or of each chunk, with their places.",
        examples: &["{ top_k = 0.2 }", "{ top_k = { density = 0.2, chunk = 64 } }"],
        leaves_out: true,
    },
    form: &support::FORM,
    stream: 0,
};

impl Reducer for TopK {
    fn choose(&self, tensor: &TensorValues<'_>, context: RoundContext, rule_state: &mut RuleState) -> ReducerChoice {
        let RuleDecision { chosen, clip } = self.density.choose(tensor.values, context, rule_state);
        match (chosen, self.chunk) {
            (Selection::Count(k), Some(chunk)) => {
                let density = Density::of(k, tensor.values.len());
                let chunk = chunk as usize;
                support::chosen(Sends::Other, clip, move |tensor: &TensorValues<'_>| {
                    top_share_of_chunks(tensor.values, chunk, density)
                })
            }
            (Selection::Count(k), None) => largest(k, clip),
            (Selection::Weighted(k), _) => weighted(k, clip),
            (Selection::Reaching { threshold, least }, _) => reaching(threshold, least, clip),
        }
    }

    fn sends(&self) -> Sends {
        match self.chunk {
            None if self.density.counts() => Sends::Largest { clip: None },
            _ => Sends::Other,
        }
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        Some(vec![Part::indexed(self.density.most(shape.len()))])
    }

    fn names_density(&self) -> bool {
        true
    }

    fn wants_bandwidth(&self) -> bool {
        self.density.wants_bandwidth()
    }

    fn remembers(&self) -> bool {
        !matches!(self.density, DensitySpec::Fixed(_) | DensitySpec::Schedule(_))
    }

    fn accepts(&self, rule_state: &RuleState) -> Result<(), Error> {
        self.density.accepts(rule_state)
    }

    fn wants_squared_gradients(&self) -> bool {
        self.density.wants_squared_gradients()
    }
}

/// The choice to send the `k` largest values, cut to the magnitude `clip`.
pub(crate) fn largest(k: usize, clip: Option<f32>) -> ReducerChoice {
    support::chosen(Sends::Largest { clip }, clip, move |tensor| {
        top_k(tensor.threads, tensor.values, k)
    })
}

/// The choice to send the `k` values whose magnitude times the root of the mean squared gradient is largest, cut to the
/// magnitude `clip`. Without squared gradients, the `k` largest.
fn weighted(k: usize, clip: Option<f32>) -> ReducerChoice {
    support::chosen(Sends::Other, clip, move |tensor| match tensor.squared_gradients {
        None => top_k(tensor.threads, tensor.values, k),
        Some(squared) => {
            let pairs = tensor.values.iter().zip(squared);
            // The root ranks as the square does, and does not overflow for values below 2^64.
            let weighted = pairs.map(|(value, squared)| (value * squared.sqrt()).clamp(f32::MIN, f32::MAX));
            top_k(tensor.threads, &weighted.collect::<Vec<f32>>(), k)
        }
    })
}

/// The choice to send the values that are at least `threshold` in magnitude, or the `least` largest if those are more, cut to
/// the magnitude `clip`.
pub(crate) fn reaching(threshold: f32, least: usize, clip: Option<f32>) -> ReducerChoice {
    support::chosen(Sends::Other, clip, move |tensor| {
        let reaching = above(tensor.values, threshold);
        if reaching.len() < least {
            top_k(tensor.threads, tensor.values, least)
        } else {
            reaching
        }
    })
}

impl From<Density> for TopK {
    fn from(density: Density) -> Self {
        Self {
            density: DensitySpec::Fixed(density),
            chunk: None,
        }
    }
}

short_forms!(TopK);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    density: DensitySpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk: Option<u32>,
}

impl Short for TopK {
    const FORMS: &'static str = "a density above 0 and at most 1, or { density = .., chunk = .. }";
    type Table = Table;

    fn from_number(number: f64) -> Result<Self, Error> {
        Density::new(number).map(Self::from)
    }

    fn from_table(Table { density, chunk }: Table) -> Result<Self, Error> {
        if chunk == Some(0) {
            return Err(Error::Usage("a chunk has at least one value".to_owned()));
        }
        Ok(Self { density, chunk })
    }

    fn parts(&self) -> Result<f64, Table> {
        match (&self.density, self.chunk) {
            (DensitySpec::Fixed(density), None) => Ok((*density).into()),
            (density, chunk) => Err(Table {
                density: density.clone(),
                chunk,
            }),
        }
    }
}

/// Ascending indices of the `min(k, non-zeros)` values largest in magnitude, the lowest index first among equals. The same
/// on any number of threads.
pub(crate) fn top_k(threads: usize, values: &[f32], k: usize) -> Vec<u32> {
    if values.len() >= 4 * SAMPLE {
        let (threshold, expected) = sampled_threshold(values, k);
        let most = 2 * expected + SAMPLE;
        let candidates = gather(threads, threshold, values, most);
        if candidates.len() >= k && candidates.len() <= most {
            return select(&candidates, k);
        }
    }
    select(&gather(threads, 1, values, 2 * values.len()), k)
}

/// Ascending indices of the largest values of each chunk of `chunk` (the last perhaps short), of which chunk `c` keeps
/// `min(k_of(c), non-zeros)`, the lowest index first among equals: `delta` is at least the least `k_of(c) / chunk`.
pub(crate) fn top_k_of_chunks(values: &[f32], chunk: usize, k_of: impl Fn(usize) -> usize) -> Vec<u32> {
    let mut out = Vec::new();
    let mut guess = 1;
    for (at, values) in values.chunks(chunk).enumerate() {
        let first = at * chunk;
        let k = k_of(at).min(values.len());
        if k == 0 {
            continue;
        }
        if values.len() < BUCKETS || k * 16 > values.len() {
            largest_of_few(first, values, k, &mut out);
            continue;
        }
        // The chunk before tells about where the threshold lies; a wrong guess costs time only.
        let mut candidates = keys_reaching(guess, first, values, values.len());
        if candidates.len() < k {
            candidates = keys_reaching(1, first, values, values.len());
        }
        let kept = select(&candidates, k);
        let least = kept
            .iter()
            .map(|&index| magnitude(values[index as usize - first]))
            .min();
        guess = least.map_or(1, |least| least.saturating_sub(QUARTER).max(1));
        out.extend_from_slice(&kept);
    }
    out
}

/// Ascending indices of the largest values of each chunk of `chunk`, its share rounded down or up, so that no more are kept
/// than the share of all values, rounded up once. Those chunks round up whose next value is the largest: a chunk that is
/// passed over has its turn when its residual has grown.
pub(crate) fn top_share_of_chunks(values: &[f32], chunk: usize, share: Density) -> Vec<u32> {
    let len_of = |at: usize| chunk.min(values.len() - at * chunk);
    let mut kept = top_k_of_chunks(values, chunk, |at| share.count(len_of(at)));
    let down = |at: usize| share.count_down(len_of(at));
    let certain: usize = (0..values.len().div_ceil(chunk)).map(down).sum();
    let room = share.count(values.len()).saturating_sub(certain);
    let mut last = Vec::new();
    for of_chunk in kept.chunk_by(|&a, &b| a as usize / chunk == b as usize / chunk) {
        if of_chunk.len() > down(of_chunk[0] as usize / chunk) {
            let keys = of_chunk
                .iter()
                .map(|&index| key(index as usize, values[index as usize]));
            last.extend(keys.min());
        }
    }
    if last.len() > room {
        last.sort_unstable_by(|a, b| b.cmp(a));
        let mut dropped: Vec<u32> = last[room..].iter().copied().map(index).collect();
        dropped.sort_unstable();
        kept.retain(|index| dropped.binary_search(index).is_err());
    }
    kept
}

/// Ascending indices of the values that are at least `threshold` in magnitude and not zero.
pub(crate) fn above(values: &[f32], threshold: f32) -> Vec<u32> {
    let keys = keys_reaching(magnitude_of(threshold), 0, values, values.len());
    keys.into_iter().map(index).collect()
}

/// Bits of the magnitude that `threshold` asks for: above zero.
pub(crate) fn magnitude_of(threshold: f32) -> u32 {
    // What is not a number is reached by nothing.
    let bits = threshold.max(0.0).to_bits();
    if threshold.is_nan() {
        i32::MAX as u32
    } else {
        bits.max(1)
    }
}

fn largest_of_few(first: usize, values: &[f32], k: usize, out: &mut Vec<u32>) {
    let mut magnitudes: Vec<u32> = values.iter().map(|&value| magnitude(value)).collect();
    let (above, &mut kth, _) = magnitudes.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    let above = above.iter().filter(|&&magnitude| magnitude > kth).count();
    push_largest(first, values, kth, k - above, out);
}

/// Appends the indices of the values above `kth` in magnitude and of the first `equals` that are equal to it, none of
/// them zero.
#[inline(never)]
fn push_largest(start: usize, values: &[f32], kth: u32, mut equals: usize, out: &mut Vec<u32>) {
    for (start, group) in (start..).step_by(GROUP).zip(values.chunks(GROUP)) {
        let mut mask = mask(kth.max(1), group);
        while mask != 0 {
            let at = mask.trailing_zeros() as usize;
            let equal = magnitude(group[at]) == kth;
            if !equal || equals > 0 {
                out.push((start + at) as u32);
                equals -= usize::from(equal);
            }
            mask &= mask - 1;
        }
    }
}

/// A value's place in the order of selection: by magnitude, then by lowest index.
fn key(index: usize, value: f32) -> u64 {
    u64::from(magnitude(value)) << 32 | u64::from(u32::MAX - index as u32)
}

fn index(key: u64) -> u32 {
    u32::MAX - key as u32
}

/// A magnitude, not zero, that about `k` and four standard deviations more values should reach; and how many those are.
fn sampled_threshold(values: &[f32], k: usize) -> (u32, usize) {
    let rng = KeyedRng::new(0, 0);
    let stride = values.len() / SAMPLE;
    let mut sample: Vec<u32> = (0..SAMPLE)
        .map(|i| magnitude(values[i * stride + rng.bits(i) as usize % stride]))
        .collect();
    let expected = k as f64 * SAMPLE as f64 / values.len() as f64;
    let rank = (expected + 4.0 * expected.sqrt() + 4.0).min((SAMPLE - 1) as f64);
    let (_, threshold, _) = sample.select_nth_unstable_by(rank as usize, |a, b| b.cmp(a));
    let reach = rank / SAMPLE as f64 * values.len() as f64;
    ((*threshold).max(1), reach as usize)
}

/// [`keys_reaching`] on several threads, each with a range of the values.
fn gather(threads: usize, threshold: u32, values: &[f32], most: usize) -> Vec<u64> {
    if threads <= 1 || values.len() < 4 * SAMPLE {
        return keys_reaching(threshold, 0, values, most);
    }
    let range = values.len().div_ceil(threads);
    let (mine, others) = values.split_at(range);
    let parts: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (range..)
            .step_by(range)
            .zip(others.chunks(range))
            .map(|(first, values)| scope.spawn(move || keys_reaching(threshold, first, values, most)))
            .collect();
        let mine = keys_reaching(threshold, 0, mine, most);
        let others = handles
            .into_iter()
            .map(|handle| handle.join().expect("gathering does not panic"));
        std::iter::once(mine).chain(others).collect()
    });
    parts.concat()
}

/// Keys, by ascending index from `first`, of the values whose magnitude reaches `threshold`; given up soon after `most`.
/// Room is reserved for half of them: a good guess finds no more.
#[inline(never)]
fn keys_reaching(threshold: u32, first: usize, values: &[f32], most: usize) -> Vec<u64> {
    let mut out = Vec::with_capacity((most / 2).min(values.len()) + BLOCK);
    let mut hits = [0; BLOCK / GROUP];
    let mut keys = [0; BLOCK + 2];
    for (start, block) in (first..).step_by(BLOCK).zip(values.chunks(BLOCK)) {
        // Two passes over a block in cache, so that no branch must be guessed in the first, and few in the second.
        let mut count = 0;
        for (at, group) in block.chunks(GROUP).enumerate() {
            hits[count % hits.len()] = at * GROUP;
            count += usize::from(any_reaches(threshold, group));
        }
        let mut found = 0;
        // Where nearly every group has some, no guess at all is best.
        if count * 10 > hits.len() * 9 {
            for (at, &value) in block.iter().enumerate() {
                keys[found] = key(start + at, value);
                found += usize::from(magnitude(value) >= threshold);
            }
            count = 0;
        }
        for &hit in &hits[..count] {
            let group = &block[hit..block.len().min(hit + GROUP)];
            let key_of = |mask: u32| {
                let at = mask.trailing_zeros() as usize % GROUP;
                key(start + hit + at, group.get(at).copied().unwrap_or(0.0))
            };
            let mut mask = mask(threshold, group);
            keys[found] = key_of(mask);
            mask &= mask - 1;
            keys[found + 1] = key_of(mask);
            found += 1 + usize::from(mask != 0);
            mask &= mask.wrapping_sub(1);
            while mask != 0 {
                keys[found] = key_of(mask);
                found += 1;
                mask &= mask - 1;
            }
        }
        out.extend_from_slice(&keys[..found]);
        if out.len() > most {
            break;
        }
    }
    out
}

#[inline(always)]
fn mask(threshold: u32, group: &[f32]) -> u32 {
    let below = threshold as i32 - 1;
    let bits = group.iter().enumerate();
    bits.fold(0, |mask, (at, &v)| mask | u32::from(magnitude(v) as i32 > below) << at)
}

/// Signed, because a baseline x86-64 compares only signed lanes.
#[inline(always)]
fn any_reaches(threshold: u32, group: &[f32]) -> bool {
    let below = threshold as i32 - 1;
    group
        .iter()
        .fold(false, |any, &value| any | (magnitude(value) as i32 > below))
}

/// Ascending indices of the `k` largest of `keys`, or of all if there are fewer.
#[inline(never)]
fn select(keys: &[u64], k: usize) -> Vec<u32> {
    if keys.len() <= k || k == 0 {
        return keys[..keys.len().min(k)].iter().copied().map(index).collect();
    }
    let smallest = kth_largest(keys, k);
    let mut out = vec![0; k + 1];
    let mut kept = 0;
    for &key in keys {
        out[kept] = index(key);
        kept += usize::from(key >= smallest);
    }
    out.truncate(k);
    out
}

/// The `k`-th largest of `keys`, which differ: a histogram says which few to look among.
fn kth_largest(keys: &[u64], mut k: usize) -> u64 {
    let (low, high) = keys
        .iter()
        .fold((u64::MAX, 0), |(low, high), &key| (low.min(key), high.max(key)));
    let shift = (u64::BITS - (high - low).leading_zeros()).saturating_sub(BUCKETS.ilog2());
    let bucket_of = |key: u64| ((key - low) >> shift) as usize % BUCKETS;
    let mut counts = [0; BUCKETS];
    keys.iter().for_each(|&key| counts[bucket_of(key)] += 1);
    let mut bucket = BUCKETS - 1;
    while bucket > 0 && counts[bucket] < k {
        k -= counts[bucket];
        bucket -= 1;
    }
    let mut few = Vec::with_capacity(counts[bucket]);
    few.extend(keys.iter().copied().filter(|&key| bucket_of(key) == bucket));
    let (_, &mut kth, _) = few.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    kth
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorting everything.
    fn reference(values: &[f32], k: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..values.len() as u32)
            .filter(|&i| values[i as usize] != 0.0)
            .collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(magnitude(values[i as usize])), i));
        order.truncate(k);
        order.sort_unstable();
        order
    }

    #[test]
    fn ties_go_to_the_lowest_index_and_zeros_are_never_kept() {
        assert_eq!(top_k(1, &[1.0, -2.0, 2.0, -2.0, 0.5], 2), [1, 2]);
        assert_eq!(top_k(1, &[0.0, -0.0, 3.0, 0.0], 3), [2]);
        assert_eq!(top_k(1, &[0.0; 9], 3), Vec::<u32>::new());
    }

    #[test]
    fn large_tensors_agree_with_sorting() {
        let len = 5 * SAMPLE + 7;
        let rng = KeyedRng::new(9, 0);
        let heavy: Vec<f32> = (0..len)
            .map(|i| (rng.unit(i) - 0.5) / (rng.unit(i + len) + 0.01))
            .collect();
        let coarse: Vec<f32> = heavy.iter().map(|value| value.round()).collect();
        let flat = vec![1.0; len];
        let spiky: Vec<f32> = (0..len).map(|i| if i % 9973 == 0 { i as f32 } else { 0.0 }).collect();
        for values in [heavy, coarse, flat, spiky] {
            for k in [1, 100, len / 100, len / 8, len / 2, len] {
                let expected = reference(&values, k);
                assert_eq!(top_k(1, &values, k), expected);
                assert_eq!(top_k(3, &values, k), expected);
                assert_eq!(top_k_of_chunks(&values, len + 1, |_| k), expected);
            }
        }
    }

    #[test]
    fn chunks_keep_their_own_largest() {
        let values = [3.0, -1.0, 1.0, 0.0, 9.0, 8.0, 0.0, 0.0, 0.5, -0.5];
        assert_eq!(top_k_of_chunks(&values, 4, |_| 2), [0, 1, 4, 5, 8, 9]);
        assert_eq!(top_k_of_chunks(&values, 4, |chunk| chunk), [4, 8, 9]);
        assert_eq!(top_k_of_chunks(&values, 3, |_| 9), [0, 1, 2, 4, 5, 8, 9]);
        assert!(top_k_of_chunks(&[], 3, |_| 9).is_empty());
        let rng = KeyedRng::new(1, 0);
        let coarse: Vec<f32> = (0..10_000).map(|i| (rng.unit(i) * 9.0).round() - 4.0).collect();
        for chunk in [1, 7, 16, 64, 300, 1500, 4096] {
            let parts = coarse.chunks(chunk).enumerate();
            let expected: Vec<u32> = parts
                .flat_map(|(at, part)| {
                    reference(part, 1 + at % 20)
                        .into_iter()
                        .map(move |i| i + (at * chunk) as u32)
                })
                .collect();
            assert_eq!(top_k_of_chunks(&coarse, chunk, |at| 1 + at % 20), expected);
        }
    }

    #[test]
    fn what_is_left_out_is_not_larger_and_the_error_is_its_energy() {
        let rng = KeyedRng::new(3, 3);
        let values: Vec<f32> = (0..777).map(|i| rng.unit(i) - 0.5).collect();
        let energy = |values: &[f32]| values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
        for k in [1, 8, 100, 776] {
            let kept = top_k(1, &values, k);
            let (mut sent, mut left) = (vec![0.0; 777], values.clone());
            for &at in &kept {
                sent[at as usize] = std::mem::take(&mut left[at as usize]);
            }
            let least = kept.iter().map(|&at| magnitude(values[at as usize])).min();
            assert!(left.iter().all(|&value| Some(magnitude(value)) <= least));
            assert!(energy(&left) <= (1.0 - k as f64 / 777.0) * energy(&values));
            assert_eq!(top_k(1, &sent, k), kept, "idempotent");
            let scaled: Vec<f32> = values.iter().map(|value| value * -8.0).collect();
            assert_eq!(top_k(1, &scaled, k), kept);
        }
    }
}
