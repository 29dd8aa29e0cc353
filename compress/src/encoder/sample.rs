//! Parts of tensors on which settings are tried.

use std::ops::Range;

/// `count` neighboring places of `len`, which begin elsewhere for each turn; all places if there are no more.
pub(crate) fn neighbors(len: usize, count: usize, turn: u64) -> Range<usize> {
    if len <= count {
        return 0..len;
    }
    let starts = len - count + 1;
    // The golden ratio spreads the starts evenly, however many turns there are.
    let start = (turn as f64 * 0.618_033_988_749_895).fract() * starts as f64;
    let start = (start as usize).min(starts - 1);
    start..start + count
}
