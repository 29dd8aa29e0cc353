//! Exact selection of the largest magnitudes, by one pass over the values and a guess that makes it cheap.
//!
//! A sample gives a threshold that a little more than `k` values should pass; one pass gathers those, and the exact
//! selection is made among them. If the guess was wrong (too few or far too many pass), the selection is made among all.

use crate::rng::Draws;

const SAMPLE: usize = 8 * 1024;
/// Values tested at a time; a group without a candidate costs no more than the test.
const GROUP: usize = 16;

/// Ascending indices of the `min(k, non-zeros)` values largest in magnitude, the lowest index first among equals.
pub(super) fn top_k(values: &[f32], k: usize) -> Vec<u32> {
    if values.len() >= 4 * SAMPLE {
        let most = 2 * k + SAMPLE;
        let candidates = reaching(sampled_threshold(values, k), values, most);
        if candidates.len() >= k && candidates.len() <= most {
            return select(candidates, k);
        }
    }
    select(reaching(1, values, values.len()), k)
}

fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// A value's place in the order of selection: by magnitude, then by lowest index.
fn key(index: usize, value: f32) -> u64 {
    u64::from(magnitude(value)) << 32 | u64::from(u32::MAX - index as u32)
}

fn index(key: u64) -> u32 {
    u32::MAX - key as u32
}

/// A magnitude, not zero, that about `k` and four standard deviations more values should reach.
fn sampled_threshold(values: &[f32], k: usize) -> u32 {
    let (draws, stride) = (Draws::new(0, 0), values.len() / SAMPLE);
    let mut sample: Vec<u32> = (0..SAMPLE)
        .map(|i| magnitude(values[i * stride + draws.bits(i) as usize % stride]))
        .collect();
    let expected = k as f64 * SAMPLE as f64 / values.len() as f64;
    let rank = (expected + 4.0 * expected.sqrt() + 4.0) as usize;
    let (_, threshold, _) = sample.select_nth_unstable_by(rank.min(SAMPLE - 1), |a, b| b.cmp(a));
    (*threshold).max(1)
}

/// Keys, by ascending index, of the values whose magnitude reaches `threshold`; given up soon after `most`.
#[inline(never)]
fn reaching(threshold: u32, values: &[f32], most: usize) -> Vec<u64> {
    let mut out = Vec::with_capacity(most.min(values.len()));
    let mut keys = [0; GROUP];
    for (start, group) in (0..).step_by(GROUP).zip(values.chunks(GROUP)) {
        if !any_reaches(threshold, group) {
            continue;
        }
        let mut count = 0;
        for (at, &value) in group.iter().enumerate() {
            keys[count] = key(start + at, value);
            count += usize::from(magnitude(value) >= threshold);
        }
        out.extend_from_slice(&keys[..count]);
        if out.len() > most {
            break;
        }
    }
    out
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
fn select(keys: Vec<u64>, k: usize) -> Vec<u32> {
    if keys.len() <= k {
        return keys.into_iter().map(index).collect();
    }
    let (_, &mut smallest, _) = keys.clone().select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    keys.into_iter().filter(|&key| key >= smallest).map(index).collect()
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
        assert_eq!(top_k(&[1.0, -2.0, 2.0, -2.0, 0.5], 2), [1, 2]);
        assert_eq!(top_k(&[0.0, -0.0, 3.0, 0.0], 3), [2]);
        assert_eq!(top_k(&[0.0; 9], 3), Vec::<u32>::new());
    }

    #[test]
    fn large_tensors_agree_with_sorting() {
        let len = 5 * SAMPLE + 7;
        let draws = Draws::new(9, 0);
        let heavy: Vec<f32> = (0..len)
            .map(|i| (draws.unit(i) - 0.5) / (draws.unit(i + len) + 0.01))
            .collect();
        let coarse: Vec<f32> = heavy.iter().map(|value| value.round()).collect();
        let flat = vec![1.0; len];
        let spiky: Vec<f32> = (0..len).map(|i| if i % 9973 == 0 { i as f32 } else { 0.0 }).collect();
        for values in [heavy, coarse, flat, spiky] {
            for k in [1, 100, len / 100, len / 8, len / 2, len] {
                assert_eq!(top_k(&values, k), reference(&values, k));
            }
        }
    }
}
