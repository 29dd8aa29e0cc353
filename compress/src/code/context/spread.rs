//! How unequal counts are, beyond chance.
//!
//! If counts have means that are gamma distributed with shape k, and no other cause, the mean that a count c speaks for is
//! in proportion to c + k. With N counted in all at n places, pairs in one place, `sum c (c - 1)`, are expected to come
//! to `N^2 / n (1 + 1/k)`, from which k is estimated; a few pairs of k = 3/5 are taken to have been seen before.

/// Running sums of counts that are made of steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spread {
    pub(crate) sum: u64,
    /// Sum of the squares of the counts.
    pub(crate) squares: u64,
    /// Sum of the squares of their steps.
    pub(crate) steps: u64,
}

impl Spread {
    /// The k of `places` counts, in units of a count.
    pub(crate) fn prior(&self, places: u64) -> u64 {
        // In sixteenths.
        let unit = (self.steps << 4).checked_div(self.sum).unwrap_or(32);
        let assumed = (unit * unit) >> 7;
        let chance = (u128::from(self.sum).pow(2) / u128::from(places)) as u64;
        let pairs = self.squares.saturating_sub(self.steps);
        let excess = (pairs + assumed * 5 / 3).saturating_sub(chance).max(1);
        (unit.saturating_mul(chance + assumed) >> 4) / excess
    }
}
