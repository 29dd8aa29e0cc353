//! Exact selection of the largest magnitudes, by one pass over the values and a guess that makes it cheap.
//!
//! A sample gives a threshold that a little more than `k` values should pass; one pass gathers those, and the exact
//! selection is made among them. If the guess was wrong (too few or far too many pass), the selection is made among all.

use crate::rng::Draws;

const SAMPLE: usize = 16 * 1024;
/// Values tested at a time; a group without a candidate costs no more than the test.
const GROUP: usize = 16;

/// Ascending indices of the `min(k, non-zeros)` values largest in magnitude, the lowest index first among equals.
pub(super) fn top_k(values: &[f32], k: usize) -> Vec<u32> {
    if values.len() >= 4 * SAMPLE && k <= values.len() / 8 {
        let most = k + k / 2 + SAMPLE;
        let candidates = above(values, sampled_threshold(values, k), most);
        if candidates.len() >= k && candidates.len() < most {
            return select(values, candidates, k);
        }
    }
    let candidates = (0..).zip(values).filter(|&(_, &value)| value != 0.0).map(|(index, _)| index).collect();
    select(values, candidates, k)
}

fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// A magnitude, not zero, that about `k` and four standard deviations more values should reach.
fn sampled_threshold(values: &[f32], k: usize) -> u32 {
    let (draws, stride) = (Draws::new(0, 0), values.len() / SAMPLE);
    let mut sample: Vec<u32> =
        (0..SAMPLE).map(|i| magnitude(values[i * stride + draws.bits(i) as usize % stride])).collect();
    let expected = k as f64 * SAMPLE as f64 / values.len() as f64;
    let rank = (expected + 4.0 * expected.sqrt() + 4.0) as usize;
    let (_, threshold, _) = sample.select_nth_unstable_by(rank.min(SAMPLE - 1), |a, b| b.cmp(a));
    (*threshold).max(1)
}

/// Ascending indices of values whose magnitude reaches `threshold`, given up at `most`.
#[inline(never)]
fn above(values: &[f32], threshold: u32, most: usize) -> Vec<u32> {
    let mut out = Vec::with_capacity(most + GROUP);
    for (group, start) in values.chunks(GROUP).zip((0u32..).step_by(GROUP)) {
        let largest = group.iter().fold(0, |largest, &value| magnitude(value).max(largest));
        if largest >= threshold {
            let reaching = (start..).zip(group).filter(|&(_, &value)| magnitude(value) >= threshold);
            out.extend(reaching.map(|(index, _)| index));
            if out.len() >= most {
                break;
            }
        }
    }
    out
}

/// The `k` of the ascending `candidates` with the largest magnitudes, or all of them if there are fewer.
fn select(values: &[f32], mut candidates: Vec<u32>, k: usize) -> Vec<u32> {
    if candidates.len() <= k {
        return candidates;
    }
    let mut magnitudes: Vec<u32> = candidates.iter().map(|&index| magnitude(values[index as usize])).collect();
    let (larger, &mut threshold, _) = magnitudes.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    let mut ties = k - larger.iter().filter(|&&magnitude| magnitude > threshold).count();
    candidates.retain(|&index| {
        let magnitude = magnitude(values[index as usize]);
        let tie = magnitude == threshold && ties > 0;
        ties -= usize::from(tie);
        tie || magnitude > threshold
    });
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorting everything.
    fn reference(values: &[f32], k: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..values.len() as u32).filter(|&i| values[i as usize] != 0.0).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(magnitude(values[i as usize])), i));
        order.truncate(k);
        order.sort_unstable();
        order
    }

    #[test]
    fn ties_go_to_the_lowest_index_and_zeros_are_never_kept() {
        assert_eq!(top_k(&[1.0, -2.0, 2.0, -2.0, 0.5], 2), [1, 2]);
        assert_eq!(top_k(&[0.0, -0.0, 3.0, 0.0], 3), [2]);
        assert_eq!(top_k(&[0.0; 9], 3), []);
    }

    #[test]
    fn large_tensors_agree_with_sorting() {
        let len = 5 * SAMPLE + 7;
        let draws = Draws::new(9, 0);
        let heavy: Vec<f32> = (0..len).map(|i| (draws.unit(i) - 0.5) / (draws.unit(i + len) + 0.01)).collect();
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
