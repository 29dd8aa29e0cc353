//! Range asymmetric numeral systems (Duda 2013) with static frequencies, four interleaved states (Giesen 2014).
//!
//! A state stays in `[2^16, 2^32)` and is renormalized by one 16-bit word. Symbol i belongs to state i mod 4. The
//! encoder runs backwards from four states of 2^16, so a decoder that ends in any other state has read corrupt bytes.

use crate::code::coder::{Entry, IndexCoding, SymbolReader};
use crate::code::table::{PRECISION, TOTAL, Table};
use crate::error::Error;
use crate::wire::{Reader, Writer};

// Four independent states: their look-ups and multiplications overlap.
const LANES: usize = 4;
// With states below 2^32 and words of 16 bits, one word always brings a state back into its range.
const FLOOR: u32 = 1 << 16;
const STATE_BYTES: usize = LANES * 4;

pub(crate) const METHOD: Entry = Entry {
    name: "rans",
    encode: |plane, out| encode(plane.symbols, &plane.counts, plane.limit, out),
    open: |bytes, width| Some(Box::new(Decoder::new(bytes, width).ok()?)),
    indices: IndexCoding::Tokens,
};

/// Appends the frequency table and the coded symbols if they take fewer than `limit` bytes; returns whether it did.
fn encode(symbols: &[u8], counts: &[u64; 256], limit: usize, out: &mut Vec<u8>) -> bool {
    let table = Table::new(counts);
    if table.cost(counts) / 8.0 + STATE_BYTES as f64 > limit as f64 {
        return false;
    }
    let start = out.len();
    table.write(&mut Writer::new(out));
    let (states, words) = code(symbols, &table);
    if out.len() - start + STATE_BYTES + words.len() * 2 >= limit {
        out.truncate(start);
        return false;
    }
    let mut writer = Writer::new(out);
    states.iter().for_each(|&state| writer.u32(state));
    words.iter().for_each(|&word| writer.u16(word));
    true
}

/// Final states and words, in the order in which the decoder reads them.
#[inline(never)]
fn code(symbols: &[u8], table: &Table) -> ([u32; LANES], Vec<u16>) {
    let pushes = pushes(table);
    let mut states = [FLOOR; LANES];
    // A symbol emits at most one word. The extra slot at the front absorbs the unconditional write of `apply`.
    let mut words = vec![0; symbols.len() + 1];
    let mut free = symbols.len();
    let (groups, tail) = symbols.as_chunks::<LANES>();
    for (state, &symbol) in states.iter_mut().zip(tail).rev() {
        pushes[usize::from(symbol)].apply(state, &mut words, &mut free);
    }
    for group in groups.iter().rev() {
        for (state, &symbol) in states.iter_mut().zip(group).rev() {
            pushes[usize::from(symbol)].apply(state, &mut words, &mut free);
        }
    }
    words.drain(..=free);
    (states, words)
}

/// Precomputed encoder step of one symbol: `(x / freq << 12) + x % freq + start` without a division.
#[derive(Debug, Clone, Copy, Default)]
struct Push {
    /// A state at or above this emits a word first.
    limit: u64,
    /// `ceil(2^64 / freq)`: the upper half of its product with a state is exactly the quotient. For frequency 1 the
    /// value does not fit and is one too small, and so is the quotient; `bias` compensates.
    reciprocal: u64,
    bias: u32,
    complement: u32,
}

impl Push {
    /// Branch-free, because whether a word is emitted is unpredictable.
    #[inline(always)]
    fn apply(&self, state: &mut u32, words: &mut [u16], free: &mut usize) {
        let full = u64::from(*state) >= self.limit;
        words[*free] = *state as u16;
        *free -= usize::from(full);
        let rest = if full { *state >> 16 } else { *state };
        let quotient = ((u128::from(rest) * u128::from(self.reciprocal)) >> 64) as u32;
        *state = rest + self.bias + quotient * self.complement;
    }
}

fn pushes(table: &Table) -> [Push; 256] {
    let mut start = 0;
    table.freqs.map(|freq| {
        let freq = u32::from(freq);
        let push = Push {
            limit: u64::from(freq) << (32 - PRECISION),
            reciprocal: if freq <= 1 {
                u64::MAX
            } else {
                u64::MAX / u64::from(freq) + 1
            },
            bias: if freq == 1 { start + TOTAL - 1 } else { start },
            complement: TOTAL - freq,
        };
        start += freq;
        push
    })
}

/// Decodes symbols in order. Past the end it returns arbitrary symbols, and [`Decoder::finish`] returns `false`.
#[derive(Debug)]
struct Decoder<'a> {
    slots: Box<[Slot]>,
    states: [u32; LANES],
    words: &'a [[u8; 2]],
    next: usize,
    lane: usize,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    freq: u16,
    offset: u16,
    symbol: u8,
}

impl<'a> Decoder<'a> {
    /// Opens `bytes`, with symbols below `1 << width`.
    fn new(bytes: &'a [u8], width: u32) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let table = Table::read(&mut reader, width)?;
        let mut states = [0; LANES];
        for state in &mut states {
            *state = reader.u32("rans state")?;
            if *state < FLOOR {
                return Err(reader.corrupt("rans state"));
            }
        }
        let (words, odd) = bytes[reader.offset()..].as_chunks();
        if !odd.is_empty() {
            return Err(reader.corrupt("rans words"));
        }
        Ok(Self {
            slots: slots(&table),
            states,
            words,
            next: 0,
            lane: 0,
        })
    }
}

impl SymbolReader for Decoder<'_> {
    #[inline(never)]
    fn read(&mut self, out: &mut [u8]) {
        let aligned = (LANES - self.lane) % LANES;
        let (head, rest) = out.split_at_mut(aligned.min(out.len()));
        let (groups, tail) = rest.as_chunks_mut::<LANES>();
        head.iter_mut().for_each(|symbol| *symbol = self.single());
        let slots: &[Slot; TOTAL as usize] = self.slots.as_ref().try_into().expect("one slot for each of the total");
        let mut states = self.states;
        let mut next = self.next;
        for group in groups {
            for (state, symbol) in states.iter_mut().zip(group) {
                *symbol = step(state, slots, self.words, &mut next);
            }
        }
        (self.states, self.next) = (states, next);
        tail.iter_mut().for_each(|symbol| *symbol = self.single());
    }

    /// Whether every word was consumed and all states are back at the start of the encoder.
    fn finish(&self) -> bool {
        self.next == self.words.len() && self.states == [FLOOR; LANES]
    }
}

impl Decoder<'_> {
    fn single(&mut self) -> u8 {
        let slots = self.slots.as_ref().try_into().expect("one slot for each of the total");
        let symbol = step(&mut self.states[self.lane], slots, self.words, &mut self.next);
        self.lane = (self.lane + 1) % LANES;
        symbol
    }
}

#[inline(always)]
fn step(state: &mut u32, slots: &[Slot; TOTAL as usize], words: &[[u8; 2]], next: &mut usize) -> u8 {
    let slot = slots[(*state % TOTAL) as usize];
    let low = u32::from(slot.freq) * (*state >> PRECISION) + u32::from(slot.offset);
    let word = words.get(*next).copied().unwrap_or_default();
    let filled = low << 16 | u32::from(u16::from_le_bytes(word));
    *state = if low < FLOOR { filled } else { low };
    *next += usize::from(low < FLOOR);
    slot.symbol
}

fn slots(table: &Table) -> Box<[Slot]> {
    let mut slots = Vec::with_capacity(TOTAL as usize);
    for (symbol, &freq) in (0..=255).zip(&table.freqs) {
        slots.extend((0..freq).map(|offset| Slot { freq, offset, symbol }));
    }
    slots.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::table::{entropy, histogram};
    use crate::rng::KeyedRng;

    fn geometric(count: usize, width: u32) -> Vec<u8> {
        let rng = KeyedRng::new(1, 0);
        (0..count)
            .map(|i| rng.bits(i).trailing_zeros().min((1 << width) - 1) as u8)
            .collect()
    }

    #[test]
    fn round_trips_in_any_portions() {
        for count in [1, 2, 3, 4, 5, 100, 4095, 20_001] {
            let symbols = geometric(count, 4);
            let mut bytes = Vec::new();
            assert!(encode(&symbols, &histogram(&symbols), usize::MAX, &mut bytes));
            for portion in [1, 3, 4, 1000, 4096] {
                let mut decoder = Decoder::new(&bytes, 4).unwrap();
                let mut out = vec![0; count];
                out.chunks_mut(portion).for_each(|part| decoder.read(part));
                assert_eq!(out, symbols);
                assert!(decoder.finish());
            }
        }
    }

    #[test]
    fn a_push_is_the_division_it_stands_for() {
        let rng = KeyedRng::new(4, 0);
        for freq in 1..=TOTAL as u16 {
            let mut table = Table { freqs: [0; 256] };
            table.freqs[0] = TOTAL as u16 - freq;
            table.freqs[1] = freq;
            let (push, freq) = (pushes(&table)[1], u32::from(freq));
            let most = (u64::from(freq) << 20) - 1;
            let random = (0..20).map(|i| rng.bits(freq as usize * 20 + i) % (most + 1));
            for state in random
                .chain([u64::from(FLOOR).min(most), most])
                .map(|state| state as u32)
            {
                let (mut pushed, mut free) = (state, 1);
                push.apply(&mut pushed, &mut [0; 2], &mut free);
                assert_eq!(free, 1, "no word is due");
                assert_eq!(pushed, ((state / freq) << PRECISION) + state % freq + (TOTAL - freq));
            }
        }
    }

    #[test]
    fn one_symbol_takes_no_words() {
        let symbols = vec![3; 1_000_000];
        let mut bytes = Vec::new();
        assert!(encode(&symbols, &histogram(&symbols), 100, &mut bytes));
        assert!(bytes.len() <= 21, "{}", bytes.len());
    }

    #[test]
    fn size_is_within_two_percent_of_the_bound() {
        let symbols = geometric(10_000, 4);
        let counts = histogram(&symbols);
        let mut bytes = Vec::new();
        encode(&symbols, &counts, usize::MAX, &mut bytes);
        assert!((bytes.len() as f64) < entropy(&counts) / 8.0 * 1.02 + 32.0);
    }

    #[test]
    fn missing_extra_and_changed_words_are_noticed() {
        let symbols = geometric(1000, 4);
        let mut bytes = Vec::new();
        encode(&symbols, &histogram(&symbols), usize::MAX, &mut bytes);
        let ends_well = |bytes: &[u8]| {
            Decoder::new(bytes, 4).is_ok_and(|mut decoder| {
                decoder.read(&mut [0; 1000]);
                decoder.finish()
            })
        };
        assert!(ends_well(&bytes));
        assert!(!ends_well(&bytes[..bytes.len() - 2]));
        assert!(!ends_well(&[bytes.as_slice(), &[0, 0]].concat()));
        bytes.swap(40, 41);
        assert!(!ends_well(&bytes));
    }
}
