//! The adaptive probability of a binary decision.

// The observation count stops here, so that a probability keeps adapting: the weight of the newest decision never
// falls below 1/1024.
const MOST: u32 = 1022;
// Below this count a context also updates its parent. A context inherits at most 8 observations, so at least its first
// 8 decisions reach the parent.
const YOUNG: u32 = 16;
// Observation count of an initial guess: the first 8 decisions of a context weigh as much as the guess.
const GUESSED: u32 = 8;
// Largest observation count that a new context inherits from its parent, so that its own decisions soon outweigh it.
const INHERITED: u32 = 8;

// Weight of the observation after `n` others: `65536 / (n + 1.5)`.
const WEIGHTS: [u16; MOST as usize + 1] = {
    let mut weights = [0; MOST as usize + 1];
    let mut n = 0;
    while n < weights.len() {
        weights[n] = (131_072 / (2 * n + 3)) as u16;
        n += 1;
    }
    weights
};

// Fraction bits of a cost. The largest cost, just below 13 bits, still fits a u16.
pub(crate) const COST: u32 = 12;
// Bits of the probability that select a cost: the table takes 8 KiB, a quarter of a usual L1 cache.
const FINE: u32 = 12;

// `-log2((i + 1/2) / 2^FINE)` with [`COST`] fraction bits. Integers, so that every machine has the same costs.
const COSTS: [u16; 1 << FINE] = {
    let mut costs = [0; 1 << FINE];
    let mut i = 0;
    while i < costs.len() {
        // 2 i + 1 is the probability with FINE + 1 fraction bits, here scaled to [1, 2) with 32 fraction bits.
        let odd = 2 * i as u64 + 1;
        let whole = odd.ilog2();
        let mut mantissa = odd << (32 - whole);
        let mut fraction = 0u32;
        let mut bit = 0;
        while bit < COST {
            mantissa = ((mantissa as u128 * mantissa as u128) >> 32) as u64;
            fraction <<= 1;
            if mantissa >> 33 != 0 {
                mantissa >>= 1;
                fraction |= 1;
            }
            bit += 1;
        }
        costs[i] = (((FINE + 1) << COST) - (whole << COST | fraction)) as u16;
        i += 1;
    }
    costs
};

/// Probability of a one in the upper 22 bits, observation count in the lower 10.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance(u32);

impl Chance {
    // Probability 1/2 and no observations.
    pub(crate) const NEW: Self = Self(1 << 31);

    /// Starts at odds of `2^(halves / 2)` to `others`, with the weight of [`GUESSED`] observations. Ranges: `halves`
    /// -32 to 32, `others` 1 to 8.
    pub(crate) fn guess(halves: i32, others: u64) -> Self {
        let power = |halves: u32| (if halves.is_multiple_of(2) { 32_768u64 } else { 46_341 }) << (halves / 2);
        let (one, zero) = if halves < 0 {
            (power(0), others * power(halves.unsigned_abs()))
        } else {
            (power(halves.unsigned_abs()), others * power(0))
        };
        Self((((one << 22) / (one + zero)) as u32) << 10 | GUESSED)
    }

    /// Probability of a one in 16 bits, never zero.
    #[inline(always)]
    pub(crate) fn ones(self) -> u32 {
        self.0 >> 16 | 1
    }

    /// Updates the probability by one decision.
    #[inline(always)]
    pub(crate) fn learn(&mut self, one: bool) {
        let count = self.0 & 1023;
        let weight = i64::from(WEIGHTS[(count.min(MOST)) as usize]);
        let chance = i64::from(self.0 >> 10);
        let target = if one { (1 << 22) - 1 } else { 0 };
        let moved = chance + (((target - chance) * weight) >> 16);
        self.0 = (moved as u32) << 10 | (count + u32::from(count < MOST));
    }

    /// Bits that a decision takes, with [`COST`] fraction bits.
    #[inline(always)]
    pub(crate) fn cost(self, one: bool) -> u32 {
        let ones = self.ones() >> (16 - FINE);
        let index = if one { ones } else { (1 << FINE) - 1 - ones };
        u32::from(COSTS[index as usize])
    }

    /// The probability that [`Chance::inherit`] would leave.
    #[inline(always)]
    pub(crate) fn inherited(mut self, parent: Self) -> Self {
        self.inherit(parent);
        self
    }

    #[inline(always)]
    pub(crate) fn is_young(self) -> bool {
        self.0 & 1023 < YOUNG
    }

    /// Copies the probability of `parent` if there are no observations yet.
    #[inline]
    pub(crate) fn inherit(&mut self, parent: Self) {
        if self.0 & 1023 == 0 {
            self.0 = parent.0 & !1023 | (parent.0 & 1023).min(INHERITED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_logarithms_of_the_probability() {
        for ones in [1u32, 100, 5000, 32_768, 60_000, 65_500] {
            let chance = Chance(ones << 16 | 20);
            for (one, share) in [(true, f64::from(ones)), (false, 65_536.0 - f64::from(ones))] {
                let (bits, cost) = (16.0 - share.log2(), f64::from(chance.cost(one)) / f64::from(1 << COST));
                // The probability is rounded to the middle of one of 4096 intervals.
                let slack = 0.001 + 2f64.powf(bits - 12.0).min(8.0);
                assert!(
                    (bits - cost).abs() < slack && cost >= 0.0,
                    "{ones} {one}: {cost} for {bits}"
                );
            }
        }
    }
}
