//! KeyedRng of this slot's own, so that random places or signs owe nothing to the rounding of the values sent.

use crate::rng::KeyedRng;

// Not the index of any value, as a layout holds at most `u32::MAX` of them.
const BEYOND: usize = u32::MAX as usize;
// Part of the format: the draws of a reducer decode to other places under another word.
const REDUCE: u64 = u64::from_le_bytes(*b"reduce\0\0");

/// KeyedRng for the reducer whose entry in the table has the number `stream`, from that of the tensor:
/// `KeyedRng::new(rng.bits(2^32 - 1) ^ "reduce", stream)`.
pub(crate) fn keyed(rng: KeyedRng, stream: usize) -> KeyedRng {
    KeyedRng::new(rng.bits(BEYOND) ^ REDUCE, stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_tensors_and_seeds_have_draws_of_their_own() {
        let mut all: Vec<u64> = [(0, 0), (0, 1), (1, 0)]
            .into_iter()
            .flat_map(|(seed, tensor)| {
                let rng = KeyedRng::new(seed, tensor);
                [1, 2, 3, 4]
                    .map(|stream| keyed(rng, stream).bits(0))
                    .into_iter()
                    .chain([rng.bits(0)])
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 15);
    }
}
