//! Pieces, signs and levels of a rotation, which encoder and decoder derive independently.

use crate::rng::KeyedRng;

// Longest piece, 256 KiB: it stays in the L2 cache.
pub(crate) const LONGEST: usize = 1 << 16;

// Positive Lloyd-Max centroids of the unit Gaussian, for 1 to 4 bits.
const CENTROIDS: [&[f32]; 4] = [
    &[0.797_884_6],
    &[0.452_780_03, 1.510_417_6],
    &[0.245_094_18, 0.756_005_3, 1.343_909_3, 2.151_945_7],
    &[
        0.128_395_03,
        0.388_048_3,
        0.656_759_1,
        0.942_340_46,
        1.256_231_2,
        1.618_046_4,
        2.069_017_2,
        2.732_589_6,
    ],
];

/// Length of the piece at the front of `left` values.
pub(crate) fn piece(left: usize) -> usize {
    if left >= LONGEST { LONGEST } else { 1 << left.ilog2() }
}

pub(crate) fn pieces(len: usize) -> usize {
    len / LONGEST + (len % LONGEST).count_ones() as usize
}

/// The centroid of each symbol of 1 to 4 bits, ascending.
pub(crate) fn levels(bits: u32) -> [f32; 16] {
    let positive = CENTROIDS[bits as usize - 1];
    let mut levels = [0.0; 16];
    for (at, &centroid) in positive.iter().enumerate() {
        levels[positive.len() + at] = centroid;
        levels[positive.len() - 1 - at] = -centroid;
    }
    levels
}

/// The random signs of a tensor: value i is negated if bit `i mod 64` of draw `i div 64` is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signs(pub(crate) KeyedRng);

impl Signs {
    /// A separate stream, so that these draws are independent of the draws of other slots.
    pub(crate) fn new(rng: KeyedRng) -> Self {
        // Part of the format: a decoder derives the same signs.
        const ROTATION: usize = 6;
        Self(KeyedRng::new(rng.bits(0), ROTATION))
    }

    /// Multiplies `values` by their signs; the first is value `first` of the tensor. Range: `first` is a multiple of
    /// 64, or all values are in one group of 64.
    #[inline(never)]
    pub(crate) fn apply(self, first: usize, values: &mut [f32]) {
        for (group, values) in (first / 64..).zip(values.chunks_mut(64)) {
            let word = self.0.bits(group) >> (first % 64);
            for (at, value) in values.iter_mut().enumerate() {
                *value = f32::from_bits(value.to_bits() ^ ((word >> at) as u32) << 31);
            }
        }
    }
}
