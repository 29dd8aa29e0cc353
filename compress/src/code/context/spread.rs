//! Estimates how much counts vary beyond chance (overdispersion).
//!
//! The model is a Poisson-gamma mixture: if the means of the counts are gamma distributed with shape k, the posterior
//! mean given a count c is proportional to c + k. For a total of N over n places, the expected number of pairs in one
//! place, `sum c (c - 1)`, is `N^2 / n (1 + 1/k)`; k is estimated from it. A few pairs at k = 3/5 serve as the prior.

/// Running sums over counts, each of which grew in steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spread {
    pub(crate) sum: u64,
    pub(crate) squares: u64,
    pub(crate) steps: u64,
}

impl Spread {
    /// The k of `places` counts, in units of a count.
    pub(crate) fn prior(&self, places: u64) -> u64 {
        // The mean step size, in sixteenths.
        let unit = (self.steps << 4).checked_div(self.sum).unwrap_or(32);
        let assumed = (unit * unit) >> 7;
        let chance = (u128::from(self.sum).pow(2) / u128::from(places)) as u64;
        let pairs = self.squares.saturating_sub(self.steps);
        let excess = (pairs + assumed * 5 / 3).saturating_sub(chance).max(1);
        (unit.saturating_mul(chance + assumed) >> 4) / excess
    }
}
