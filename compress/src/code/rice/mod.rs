//! Rice codes of gaps (Rice 1979), with one parameter per block: near the entropy bound on random supports, and
//! adaptive to a density that changes along the tensor. [`symbols`] maps planes of symbols to such gaps.
//!
//! A block is 5 bits `p`, then for each gap `gap >> p` ones, a zero, and the lowest `p` bits. [`ESCAPE`] ones escape to
//! the whole gap in 32 bits, so that no gap takes more than 80 bits.

use crate::code::bits::{BitReader, BitWriter};

pub(crate) mod symbols;

// The 5 bits of a parameter cost 0.02 bits per gap.
const BLOCK: usize = 256;
// The coded gap of an escape takes 80 bits: 48 ones, in two writes of 24, and 32 bits.
const ESCAPE: u32 = 48;

pub(crate) fn encode(gaps: &[u32], out: &mut Vec<u8>) {
    let mut bits = BitWriter::new(out);
    gaps.chunks(BLOCK).for_each(|block| encode_block(block, &mut bits));
    bits.finish();
}

fn encode_block(block: &[u32], bits: &mut BitWriter<'_>) {
    let p = parameter(block);
    bits.put(p, 5);
    for &gap in block {
        let quotient = gap >> p;
        if quotient >= ESCAPE {
            bits.put((1 << (ESCAPE / 2)) - 1, ESCAPE / 2);
            bits.put((1 << (ESCAPE / 2)) - 1, ESCAPE / 2);
            bits.put(gap, 32);
            continue;
        }
        if quotient >= 24 {
            bits.put((1 << 24) - 1, 24);
        }
        let ones = quotient % 24;
        bits.put((1 << ones) - 1, ones + 1);
        bits.put(gap & ((1 << p) - 1), p);
    }
}

/// The parameter that makes `block` shortest; on a tie the lowest.
fn parameter(block: &[u32]) -> u32 {
    let mean = block.iter().map(|&gap| u64::from(gap)).sum::<u64>() / block.len() as u64;
    let guess = (mean + 1).ilog2().min(31);
    (guess.saturating_sub(2)..=(guess + 1).min(31))
        .min_by_key(|&p| block.iter().map(|&gap| size(gap, p)).sum::<u64>())
        .unwrap_or(guess)
}

fn size(gap: u32, p: u32) -> u64 {
    let quotient = gap >> p;
    u64::from(if quotient >= ESCAPE {
        ESCAPE + 32
    } else {
        quotient + 1 + p
    })
}

#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    bits: BitReader<'a>,
    p: u32,
    left: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bits: BitReader::new(bytes),
            p: 0,
            left: 0,
        }
    }

    pub(crate) fn read(&mut self, out: &mut [u32]) {
        for gap in out {
            if self.left == 0 {
                self.left = BLOCK;
                self.p = self.bits.take(5);
            }
            self.left -= 1;
            let quotient = self.bits.take_ones(ESCAPE);
            *gap = if quotient == ESCAPE {
                self.bits.take(32)
            } else {
                quotient.wrapping_shl(self.p) | self.bits.take(self.p)
            };
        }
    }

    pub(crate) fn finish(&self) -> bool {
        self.bits.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::KeyedRng;

    fn round_trip(gaps: &[u32]) -> usize {
        let mut bytes = Vec::new();
        encode(gaps, &mut bytes);
        let mut decoder = Decoder::new(&bytes);
        let mut out = vec![0; gaps.len()];
        out.chunks_mut(100).for_each(|part| decoder.read(part));
        assert_eq!(out, gaps);
        assert!(decoder.finish());
        bytes.len()
    }

    #[test]
    fn any_gaps_round_trip() {
        round_trip(&[]);
        round_trip(&[0]);
        round_trip(&[u32::MAX]);
        round_trip(&[0, u32::MAX, 1, u32::MAX - 1, 23, 24, 47, 48, 1 << 31]);
        round_trip(&(0..3000u32).collect::<Vec<_>>());
        round_trip(
            &(0..3000)
                .map(|i| (KeyedRng::new(1, 0).bits(i) >> (32 + i % 32)) as u32)
                .collect::<Vec<_>>(),
        );
    }

    /// Golomb's parameter for a density of a quarter is 1: gaps 0 and 2 become `00` and `100`. The encoder takes the
    /// shortest parameter, here 0.
    #[test]
    fn gaps_of_the_worked_example() {
        let mut decoder = Decoder::new(&[0b1000_0001, 0]);
        let mut out = [7; 2];
        decoder.read(&mut out);
        assert_eq!(out, [0, 2]);
        assert!([0, 2].map(|gap| size(gap, 1)) == [2, 3] && [0, 2].map(|gap| size(gap, 0)) == [1, 3]);
        assert_eq!((parameter(&out), round_trip(&out)), (0, 2));
    }

    #[test]
    fn random_supports_are_within_two_percent_of_the_bound() {
        let (density, rng) = (0.01, KeyedRng::new(3, 0));
        let gaps: Vec<u32> = (0..20_000)
            .map(|i| (f64::from(rng.unit(i) + 1e-7).ln() / f64::ln(1.0 - density)) as u32)
            .collect();
        // 8.08 bits per index is the entropy bound h(p)/p at p = 0.01.
        let bits = round_trip(&gaps) as f64 * 8.0 / 20_000.0;
        assert!(bits < 8.08 * 1.02, "{bits}");
    }
}
