//! Prefix codes (Huffman 1952) of at most twelve bits, by package-merge (Larmore and Hirschberg 1990), canonical.
//!
//! One bit stream: the code length of each symbol, then the codewords. The lengths start at symbol 0 and end as soon as
//! the code is complete (Kraft sum 1). A length takes 4 bits: 1 to 12; or 0, and 4 more bits with the number of further
//! absent symbols; or 13 for the only symbol of the plane, whose codeword is empty.

use crate::code::bits::{BitReader, BitWriter};
use crate::code::coder::{Entry, IndexCoding, SymbolReader};

// Longest codeword in bits: lengths fit a field of 4 bits beside 0 and `ALONE`, and the decoder's table has 4096
// entries.
const LONGEST: u32 = 12;
const TOTAL: u32 = 1 << LONGEST;
// The length field of an empty codeword: the first of 4 bits that is no length.
const ALONE: u32 = 13;
// Longest run of absent symbols in one length field: the first, and 4 bits of further ones.
const RUN: usize = 16;

pub(crate) const METHOD: Entry = Entry {
    name: "huffman",
    encode: |plane, out| encode(plane.symbols, &plane.counts, plane.limit, out),
    open: |bytes, width| Some(Box::new(Decoder::new(bytes, width)?)),
    indices: IndexCoding::Tokens,
};

/// Appends lengths and codewords if they take fewer than `limit` bytes; returns whether it did. `counts` is the
/// histogram of `symbols`, which are not empty.
fn encode(symbols: &[u8], counts: &[u64; 256], limit: usize, out: &mut Vec<u8>) -> bool {
    let lengths = lengths(counts);
    let bits: u64 = counts
        .iter()
        .zip(&lengths)
        .map(|(&count, &length)| count * u64::from(length))
        .sum();
    if bits / 8 >= limit as u64 {
        return false;
    }
    let start = out.len();
    let mut writer = BitWriter::new(out);
    write_lengths(counts, &lengths, &mut writer);
    write_codes(symbols, &codes(&lengths), &mut writer);
    writer.finish();
    let shorter = out.len() - start < limit;
    if !shorter {
        out.truncate(start);
    }
    shorter
}

/// Optimal code lengths of at most [`LONGEST`] bits; zero for absent symbols, and for a symbol that is the only one.
///
/// Package-merge: a codeword of length l is one coin of each denomination 2^-1 .. 2^-l, priced at the count of its
/// symbol; a complete code of n symbols spends n - 1 in total. From the smallest denomination up, pairs of coins become
/// packages of the next denomination, and the cheapest 2n - 2 items of the largest denomination are bought.
fn lengths(counts: &[u64; 256]) -> [u8; 256] {
    let mut coins: Vec<(u64, usize)> = counts
        .iter()
        .copied()
        .zip(0..)
        .filter(|&(count, _)| count > 0)
        .collect();
    coins.sort_unstable();
    let wanted = 2 * coins.len() - 2;
    // The lengths follow from the number of coins bought per denomination, so a package does not list its coins.
    let mut levels: Vec<Vec<(u64, bool)>> = Vec::new();
    for _ in 0..LONGEST {
        let packages = levels.last().map_or(&[][..], Vec::as_slice).as_chunks::<2>().0;
        let packages = packages.iter().map(|[(a, _), (b, _)]| (a + b, true));
        let mut level: Vec<(u64, bool)> = coins.iter().map(|&(count, _)| (count, false)).chain(packages).collect();
        level.sort_unstable();
        levels.push(level);
    }
    let mut lengths = [0; 256];
    let mut taken = wanted;
    for level in levels.iter().rev() {
        let packages = level[..taken].iter().filter(|&&(_, package)| package).count();
        coins[..taken - packages]
            .iter()
            .for_each(|&(_, symbol)| lengths[symbol] += 1);
        taken = packages * 2;
    }
    lengths
}

fn write_lengths(counts: &[u64; 256], lengths: &[u8; 256], out: &mut BitWriter<'_>) {
    let mut symbol = 0;
    let mut used = 0;
    while used < TOTAL {
        let absent = counts[symbol..]
            .iter()
            .take(RUN)
            .take_while(|&&count| count == 0)
            .count();
        let length = u32::from(lengths[symbol]);
        if absent > 0 {
            out.put((absent as u32 - 1) << 4, 8);
            symbol += absent;
        } else if length == 0 {
            out.put(ALONE, 4);
            used = TOTAL;
        } else {
            out.put(length, 4);
            used += TOTAL >> length;
            symbol += 1;
        }
    }
}

/// Reads the output of [`write_lengths`] for symbols below `1 << width`; `None` if the code is not complete.
fn read_lengths(bits: &mut BitReader<'_>, width: u32) -> Option<[Option<u8>; 256]> {
    let mut lengths = [None; 256];
    let mut symbol = 0;
    let mut used = 0;
    while used < TOTAL {
        if symbol >> width != 0 {
            return None;
        }
        match bits.take(4) {
            0 => symbol += 1 + bits.take(4) as usize,
            length @ 1..=LONGEST => {
                lengths[symbol] = Some(length as u8);
                used += TOTAL >> length;
                symbol += 1;
            }
            ALONE if used == 0 => {
                lengths[symbol] = Some(0);
                used = TOTAL;
            }
            _ => return None,
        }
    }
    (used == TOTAL).then_some(lengths)
}

/// Canonical codeword (first bit lowest) and length of each symbol.
fn codes(lengths: &[u8; 256]) -> [(u16, u8); 256] {
    let mut codes = [(0, 0); 256];
    let mut next = 0;
    for length in 1..=LONGEST as u8 {
        for (symbol, _) in (0..256).zip(lengths).filter(|&(_, &own)| own == length) {
            let shift = 16 - u32::from(length);
            codes[symbol] = (
                ((next >> (LONGEST - u32::from(length))) as u16).reverse_bits() >> shift,
                length,
            );
            next += TOTAL >> length;
        }
    }
    codes
}

#[inline(never)]
fn write_codes(symbols: &[u8], codes: &[(u16, u8); 256], out: &mut BitWriter<'_>) {
    let (pairs, last) = symbols.as_chunks::<2>();
    for pair in pairs {
        let [(low, first), (high, second)] = pair.map(|symbol| codes[usize::from(symbol)]);
        out.put(u32::from(low) | u32::from(high) << first, u32::from(first + second));
    }
    for &symbol in last {
        let (code, length) = codes[usize::from(symbol)];
        out.put(u32::from(code), u32::from(length));
    }
}

/// Decodes symbols in order. Past the end it returns arbitrary symbols, and [`Decoder::finish`] returns `false`.
#[derive(Debug)]
struct Decoder<'a> {
    bits: BitReader<'a>,
    /// Lookup table: symbol and code length for every value of the next 12 bits.
    table: Box<[(u8, u8)]>,
}

impl<'a> Decoder<'a> {
    /// Opens `bytes`, with symbols below `1 << width`; `None` if the code lengths are not those of a complete code.
    fn new(bytes: &'a [u8], width: u32) -> Option<Self> {
        let mut bits = BitReader::new(bytes);
        let given = read_lengths(&mut bits, width)?;
        let mut table = vec![(0, 0); TOTAL as usize].into_boxed_slice();
        let codes = codes(&given.map(Option::unwrap_or_default));
        for (symbol, (&(code, length), given)) in (0..=255).zip(codes.iter().zip(&given)) {
            if given.is_some() {
                let places = table.iter_mut().skip(usize::from(code)).step_by(1 << length);
                places.for_each(|place| *place = (symbol, length));
            }
        }
        Some(Self { bits, table })
    }
}

impl SymbolReader for Decoder<'_> {
    #[inline(never)]
    fn read(&mut self, out: &mut [u8]) {
        let table: &[(u8, u8); TOTAL as usize] = self.table.as_ref().try_into().expect("one entry for each 12 bits");
        let mut bits = self.bits.clone();
        for group in out.chunks_mut(4) {
            // The 56 buffered bits hold four codewords of 12 bits.
            bits.fill();
            for place in group {
                let (symbol, length) = table[bits.peek(LONGEST) as usize];
                *place = symbol;
                bits.skip(u32::from(length));
            }
        }
        self.bits = bits;
    }

    fn finish(&self) -> bool {
        self.bits.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::table::{entropy, histogram};
    use crate::rng::KeyedRng;

    fn round_trip(symbols: &[u8], width: u32) -> usize {
        let mut bytes = Vec::new();
        assert!(encode(symbols, &histogram(symbols), usize::MAX, &mut bytes));
        for portion in [1, 3, 4096] {
            let mut decoder = Decoder::new(&bytes, width).unwrap();
            let mut out = vec![0; symbols.len()];
            out.chunks_mut(portion).for_each(|part| decoder.read(part));
            assert!(out == symbols && decoder.finish());
        }
        bytes.len()
    }

    #[test]
    fn planes_round_trip() {
        round_trip(&[0], 1);
        round_trip(&[255], 8);
        assert_eq!(
            round_trip(&[7; 100_000], 3),
            2,
            "a run of absent symbols and an empty codeword"
        );
        round_trip(&[0, 255], 8);
        round_trip(&(0..=255).collect::<Vec<u8>>(), 8);
        let rng = KeyedRng::new(1, 0);
        let skewed: Vec<u8> = (0..20_001).map(|i| rng.bits(i).trailing_zeros() as u8 * 3).collect();
        round_trip(&skewed, 8);
    }

    #[test]
    fn lengths_are_bounded_full_and_near_the_entropy() {
        // Fibonacci counts produce the longest codewords of an unbounded Huffman code.
        let mut counts = [0u64; 256];
        (counts[0], counts[1]) = (1, 1);
        (2..40).for_each(|i| counts[i] = counts[i - 1] + counts[i - 2]);
        let lengths = lengths(&counts);
        let used: u32 = lengths
            .iter()
            .filter(|&&length| length > 0)
            .map(|&length| TOTAL >> length)
            .sum();
        assert_eq!(used, TOTAL);
        assert!(lengths.iter().all(|&length| u32::from(length) <= LONGEST));
        let bits: u64 = counts
            .iter()
            .zip(&lengths)
            .map(|(&count, &length)| count * u64::from(length))
            .sum();
        assert!(bits as f64 <= entropy(&counts) * 1.05);
        // The limit does not bind here: expected lengths from a Huffman tree worked out by hand.
        let mut counts = [0u64; 256];
        counts[..5].copy_from_slice(&[15, 7, 6, 6, 5]);
        assert_eq!(super::lengths(&counts)[..6], [1, 3, 3, 3, 3, 0]);
    }

    #[test]
    fn bad_lengths_are_refused() {
        let nibbles = |nibbles: &[u8]| {
            nibbles
                .chunks(2)
                .map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4)
                .collect::<Vec<_>>()
        };
        assert!(Decoder::new(&nibbles(&[1, 1]), 1).is_some());
        assert!(Decoder::new(&nibbles(&[0, 2, 13]), 2).is_some());
        for bad in [
            &[2, 1, 1][..],
            &[1, 13],
            &[14],
            &[15, 15],
            &[0, 15, 1, 1],
            &[1, 2],
            &[0, 3, 13],
            &[],
        ] {
            assert!(Decoder::new(&nibbles(bad), 2).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn missing_and_extra_bytes_are_noticed() {
        let symbols: Vec<u8> = (0..1000)
            .map(|i| KeyedRng::new(4, 0).bits(i).trailing_zeros().min(15) as u8)
            .collect();
        let mut bytes = Vec::new();
        encode(&symbols, &histogram(&symbols), usize::MAX, &mut bytes);
        let ends_well = |bytes: &[u8]| {
            let mut decoder = Decoder::new(bytes, 4).unwrap();
            decoder.read(&mut [0; 1000]);
            decoder.finish()
        };
        assert!(ends_well(&bytes));
        assert!(!ends_well(&bytes[..bytes.len() - 1]));
        assert!(!ends_well(&[bytes.as_slice(), &[0]].concat()));
    }
}
