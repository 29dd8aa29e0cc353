//! Binary range coding (Martin 1979): each decision splits a 32-bit interval in proportion to its probability; leading
//! bytes that can no longer change, except by a carry, are written.

use crate::code::context::chance::Chance;

// Smallest interval before a decision. `range >> 16` is then at least 256, so both parts of a split are nonempty for
// every probability of 16 bits, and the top byte of `low` is ready to be written.
const FLOOR: u32 = 1 << 24;
// Check byte, coded after the last decision: a decoder that left the encoder's path finds another one in 255 of 256
// cases.
const CHECK: u32 = 0xa5;

/// Codes decisions: an encoder writes its arguments; a decoder ignores them and returns the decoded ones. Models are
/// written once against this trait, so encoder and decoder cannot disagree on a context.
pub(crate) trait Binary {
    /// Codes one decision that is a one with probability `ones / 65536`.
    fn split(&mut self, ones: u32, one: bool) -> bool;

    /// Codes `count` equiprobable bits. Range: `count <= 8`, `bits < 1 << count`.
    fn plain(&mut self, bits: u32, count: u32) -> u32;

    /// Codes one decision and updates `chance`.
    #[inline(always)]
    fn code(&mut self, chance: &mut Chance, one: bool) -> bool {
        let one = self.split(chance.ones(), one);
        chance.learn(one);
        one
    }

    /// Codes one decision in a context that starts with the probability of its parent and updates the parent while it
    /// is young.
    #[inline(always)]
    fn code_in(&mut self, chance: &mut Chance, parent: &mut Chance, one: bool) -> bool {
        if chance.is_young() {
            chance.inherit(*parent);
            let one = self.code(chance, one);
            parent.learn(one);
            return one;
        }
        self.code(chance, one)
    }
}

#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    low: u32,
    range: u32,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            low: 0,
            range: u32::MAX,
        }
    }

    /// Bytes written so far, with those that were there before.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Ends the stream: the check byte, then the one byte that identifies a point in the final interval.
    pub(crate) fn finish(mut self) {
        self.plain(CHECK, 8);
        self.raise(FLOOR - 1);
        self.out.push((self.low >> 24) as u8);
    }

    #[inline(always)]
    fn raise(&mut self, by: u32) {
        let (low, carry) = self.low.overflowing_add(by);
        self.low = low;
        if carry {
            carry_into(self.out);
        }
    }

    #[inline(always)]
    fn fill(&mut self) {
        while self.range < FLOOR {
            self.out.push((self.low >> 24) as u8);
            self.low <<= 8;
            self.range <<= 8;
        }
    }
}

/// Propagates a carry into the written bytes. The first byte cannot overflow: the coded number is a fraction below one.
#[cold]
fn carry_into(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
}

impl Binary for Encoder<'_> {
    #[inline(always)]
    fn split(&mut self, ones: u32, one: bool) -> bool {
        let upper = (self.range >> 16) * ones;
        let lower = self.range - upper;
        if one {
            self.raise(lower);
            self.range = upper;
        } else {
            self.range = lower;
        }
        self.fill();
        one
    }

    fn plain(&mut self, bits: u32, count: u32) -> u32 {
        self.range >>= count;
        self.raise(bits * self.range);
        self.fill();
        bits
    }
}

/// Decodes decisions in order. Past the end it returns arbitrary ones, and [`Decoder::ends`] returns `false`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    /// Bytes consumed, including those past the end.
    next: usize,
    /// The coded number, relative to the start of the interval.
    place: u32,
    range: u32,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut new = Self {
            bytes,
            next: 0,
            place: 0,
            range: u32::MAX,
        };
        (0..4).for_each(|_| new.byte());
        new
    }

    /// Whether the stream ends here: the check byte is next, and the stream has the length that an encoder writes.
    pub(crate) fn ends(mut self) -> bool {
        self.plain(0, 8) == CHECK && self.next == self.bytes.len() + 3
    }

    #[inline(always)]
    fn byte(&mut self) {
        let byte = self.bytes.get(self.next).copied().unwrap_or_default();
        self.place = self.place << 8 | u32::from(byte);
        self.next += 1;
    }

    #[inline(always)]
    fn fill(&mut self) {
        while self.range < FLOOR {
            self.byte();
            self.range <<= 8;
        }
    }
}

impl Binary for Decoder<'_> {
    #[inline(always)]
    fn split(&mut self, ones: u32, _: bool) -> bool {
        let upper = (self.range >> 16) * ones;
        let lower = self.range - upper;
        let one = self.place >= lower;
        if one {
            self.place -= lower;
            self.range = upper;
        } else {
            self.range = lower;
        }
        self.fill();
        one
    }

    fn plain(&mut self, _: u32, count: u32) -> u32 {
        self.range >>= count;
        let bits = (self.place / self.range).min((1 << count) - 1);
        self.place -= bits * self.range;
        self.fill();
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::KeyedRng;

    #[test]
    fn decisions_of_any_probability_are_kept_and_the_end_is_known() {
        let rng = KeyedRng::new(8, 0);
        for most in [1, 2, 300, 65_535] {
            // A one is the upper part of the interval, so long runs of ones carry through many bytes.
            let decision = |i: usize| (1 + rng.bits(i) as u32 % most, rng.bits(i) >> 63 != 0);
            let mut bytes = vec![7];
            let mut encoder = Encoder::new(&mut bytes);
            for (ones, one) in (0..3000).map(decision) {
                encoder.split(ones, one);
                encoder.plain(ones % 32, 5);
            }
            encoder.finish();
            assert_eq!(bytes[0], 7, "a carry must not pass the first byte of the stream");
            let mut decoder = Decoder::new(&bytes[1..]);
            for (ones, one) in (0..3000).map(decision) {
                assert_eq!(decoder.split(ones, false), one);
                assert_eq!(decoder.plain(0, 5), ones % 32);
            }
            assert!(decoder.ends());
        }
    }
}
