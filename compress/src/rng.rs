//! Counter-based randomness: a draw depends only on the seed, the tensor and the index, so neither order nor threads
//! change an encoding.

// 2^64 over the golden ratio: the increment of SplitMix64 (Steele, Lea and Flood 2014).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedRng(u64);

impl KeyedRng {
    pub(crate) fn new(seed: u64, tensor: usize) -> Self {
        Self(mix(mix(seed ^ GOLDEN).wrapping_add(tensor as u64)))
    }

    /// The generator of part `at` of the tensor. Part 0 has the generator of the tensor.
    pub(crate) fn part(self, at: u64) -> Self {
        if at == 0 {
            self
        } else {
            Self(mix(self.0 ^ at.wrapping_mul(GOLDEN)))
        }
    }

    /// 64 uniform bits at `index`.
    #[inline(always)]
    pub(crate) fn bits(self, index: usize) -> u64 {
        mix(self.0.wrapping_add((index as u64).wrapping_mul(GOLDEN)))
    }

    /// Uniform in [0, 1), a multiple of 2^-24, at `index`.
    #[inline(always)]
    pub(crate) fn unit(self, index: usize) -> f32 {
        // By way of a signed integer: AVX2 converts no others.
        (self.bits(index) >> 40) as i32 as f32 * (1.0 / 16_777_216.0)
    }
}

/// Finalizer of SplitMix64 (Steele, Lea and Flood 2014, Stafford's variant 13).
#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_and_keyed() {
        let rng = KeyedRng::new(7, 3);
        let mean = (0..10_000).map(|i| f64::from(rng.unit(i))).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert_ne!(rng.bits(0), KeyedRng::new(8, 3).bits(0));
        assert_ne!(rng.bits(0), KeyedRng::new(7, 4).bits(0));
        assert_eq!(rng.bits(5), KeyedRng::new(7, 3).bits(5));
    }
}
