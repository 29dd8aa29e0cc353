//! The adaptive probability of a binary decision.

/// The observation count stops here, so that a probability keeps adapting: the weight of the newest decision never
/// falls below 1/1024.
const MOST: u32 = 1022;
/// Below this count a context also updates its parent.
const YOUNG: u32 = 16;
/// Observation count of an initial guess.
const GUESSED: u32 = 8;
/// Largest observation count that a new context inherits from its parent.
const INHERITED: u32 = 8;

/// Weight of the observation after `n` others: `65536 / (n + 1.5)`.
const WEIGHTS: [u16; MOST as usize + 1] = {
    let mut weights = [0; MOST as usize + 1];
    let mut n = 0;
    while n < weights.len() {
        weights[n] = (131_072 / (2 * n + 3)) as u16;
        n += 1;
    }
    weights
};

/// Probability of a one in the upper 22 bits, observation count in the lower 10.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance(u32);

impl Chance {
    /// Probability 1/2 and no observations.
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
