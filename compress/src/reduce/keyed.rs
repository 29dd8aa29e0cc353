//! KeyedRng of this slot's own, so that random places or signs owe nothing to the rounding of the values sent.

use crate::rng::KeyedRng;

/// Not the index of any value, as a layout holds at most `u32::MAX` of them.
const BEYOND: usize = u32::MAX as usize;
const REDUCE: u64 = u64::from_le_bytes(*b"reduce\0\0");

/// What the draws are for; part of the format.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Places = 1,
    LowRank = 2,
    Sketch = 3,
    Signs = 4,
    Sample = 5,
}

/// KeyedRng for `purpose`, from those of the tensor: `KeyedRng::new(draws.bits(2^32 - 1) ^ "reduce", purpose)`.
pub(crate) fn keyed(rng: KeyedRng, purpose: Purpose) -> KeyedRng {
    KeyedRng::new(rng.bits(BEYOND) ^ REDUCE, purpose as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_tensors_and_seeds_have_draws_of_their_own() {
        let mut all: Vec<u64> = [(0, 0), (0, 1), (1, 0)]
            .into_iter()
            .flat_map(|(seed, tensor)| {
                let rng = KeyedRng::new(seed, tensor);
                [Purpose::Places, Purpose::LowRank, Purpose::Sketch, Purpose::Signs]
                    .map(|purpose| keyed(rng, purpose).bits(0))
                    .into_iter()
                    .chain([rng.bits(0)])
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 15);
    }
}
