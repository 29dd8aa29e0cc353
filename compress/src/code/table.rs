//! Integer frequencies of one plane. Encoder and decoder compute with the same integers, so rounding cannot make them
//! disagree.

use crate::error::Error;
use crate::math;
use crate::wire::{Reader, Writer};

// Frequencies sum to `1 << PRECISION`. The rarest symbol costs 12 bits, and a decoder's table of the sum has 4096
// entries.
pub(crate) const PRECISION: u32 = 12;
pub(crate) const TOTAL: u32 = 1 << PRECISION;

/// Frequency of each of the 256 symbols; zero for absent symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) freqs: [u16; 256],
}

impl Table {
    /// Frequencies in proportion to `counts` (not all zero), at least one for each symbol that occurs.
    pub(crate) fn new(counts: &[u64; 256]) -> Self {
        let total: u64 = counts.iter().sum();
        let mut freqs = counts.map(|count| {
            let share = (count as f64 * f64::from(TOTAL) / total as f64).round() as u16;
            if count == 0 { 0 } else { share.max(1) }
        });
        let mut sum: u32 = freqs.iter().map(|&freq| u32::from(freq)).sum();
        while sum != TOTAL {
            // Moves the frequency of the symbol whose code length changes least.
            let by_count_per_freq =
                |&a: &usize, &b: &usize| (counts[a] * u64::from(freqs[b])).cmp(&(counts[b] * u64::from(freqs[a])));
            if sum > TOTAL {
                let cheapest = (0..256).filter(|&symbol| freqs[symbol] > 1).min_by(by_count_per_freq);
                freqs[cheapest.expect("256 symbols of frequency one sum to less than the total")] -= 1;
                sum -= 1;
            } else {
                let dearest = (0..256).filter(|&symbol| freqs[symbol] > 0).max_by(by_count_per_freq);
                freqs[dearest.expect("a symbol occurs")] += 1;
                sum += 1;
            }
        }
        Self { freqs }
    }

    /// Writes frequencies from symbol 0 until they sum to the total. A zero is followed by the number of further zeros.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let mut symbol = 0;
        let mut sum = 0;
        while sum < TOTAL {
            let freq = self.freqs[symbol];
            out.varint(u64::from(freq));
            symbol += 1;
            sum += u32::from(freq);
            if freq == 0 {
                let more = self.freqs[symbol..].iter().take_while(|&&freq| freq == 0).count();
                out.varint(more as u64);
                symbol += more;
            }
        }
    }

    /// Reads the output of [`Table::write`] for an alphabet of `1 << width` symbols.
    pub(crate) fn read(reader: &mut Reader<'_>, width: u32) -> Result<Self, Error> {
        let what = "frequency table";
        let symbols = 1usize << width;
        let mut freqs = [0u16; 256];
        let mut symbol = 0;
        let mut left = u64::from(TOTAL);
        while left > 0 {
            let freq = reader.varint(what)?;
            if symbol >= symbols || freq > left {
                return Err(reader.corrupt(what));
            }
            freqs[symbol] = freq as u16;
            left -= freq;
            symbol += 1;
            if freq == 0 {
                let more = reader.varint(what)?;
                symbol = usize::try_from(more)
                    .ok()
                    .and_then(|more| symbol.checked_add(more))
                    .unwrap_or(symbols);
            }
        }
        Ok(Self { freqs })
    }

    /// Bits of symbols with this histogram, without the final states of the coder.
    pub(crate) fn cost(&self, counts: &[u64; 256]) -> f64 {
        counts
            .iter()
            .zip(&self.freqs)
            .filter(|&(&count, _)| count > 0)
            .map(|(&count, &freq): (&u64, &u16)| count as f64 * (f64::from(PRECISION) - math::log2(f64::from(freq))))
            .sum()
    }
}

/// Histogram of symbols. Four lanes, so that equal neighbors do not wait for each other's increment.
pub(crate) fn histogram(symbols: &[u8]) -> [u64; 256] {
    let mut lanes = [[0u32; 256]; 4];
    let mut counts = [0u64; 256];
    // A block is short enough that no `u32` counter overflows.
    for block in symbols.chunks(1 << 30) {
        lanes.iter_mut().for_each(|lane| lane.fill(0));
        let (groups, rest) = block.as_chunks::<4>();
        for group in groups {
            for (lane, &symbol) in lanes.iter_mut().zip(group) {
                lane[usize::from(symbol)] += 1;
            }
        }
        rest.iter().for_each(|&symbol| lanes[0][usize::from(symbol)] += 1);
        for lane in &lanes {
            counts
                .iter_mut()
                .zip(lane)
                .for_each(|(count, &more)| *count += u64::from(more));
        }
    }
    counts
}

/// Total order-0 entropy in bits of symbols with this histogram.
pub(crate) fn entropy(counts: &[u64; 256]) -> f64 {
    let total = counts.iter().sum::<u64>() as f64;
    counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| count as f64 * math::log2(total / count as f64))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counts: [u64; 256], width: u32) {
        let table = Table::new(&counts);
        assert_eq!(table.freqs.iter().map(|&freq| u32::from(freq)).sum::<u32>(), TOTAL);
        assert!(
            counts
                .iter()
                .zip(&table.freqs)
                .all(|(&count, &freq)| (count == 0) == (freq == 0))
        );
        let mut bytes = Vec::new();
        table.write(&mut Writer::new(&mut bytes));
        let mut reader = Reader::new(&bytes);
        assert_eq!(Table::read(&mut reader, width), Ok(table));
        assert_eq!(reader.finish("end"), Ok(()));
    }

    #[test]
    fn tables_sum_to_the_total_and_round_trip() {
        let from = |count: fn(u64) -> u64| std::array::from_fn(|symbol| count(symbol as u64));
        check(from(|symbol| u64::from(symbol == 7)), 3);
        check(from(|_| 1), 8);
        check(from(|symbol| if symbol == 255 { 1_000_000_000 } else { 1 }), 8);
        check(from(|symbol| symbol % 3 * 1000), 8);
        check(from(|symbol| u64::from(symbol < 16) * (1 << (16 - symbol.min(16)))), 4);
    }

    #[test]
    fn bad_tables_are_refused() {
        let read = |bytes: &[u8], width| Table::read(&mut Reader::new(bytes), width);
        assert!(
            matches!(read(&[0x81, 0x20], 4), Err(Error::Corrupt { .. })),
            "past the total"
        );
        assert!(
            matches!(read(&[0, 15, 0x80, 0x20], 4), Err(Error::Corrupt { .. })),
            "past the alphabet"
        );
        assert!(
            matches!(read(&[0, 0xff, 0xff, 0xff, 0x7f, 1], 4), Err(Error::Corrupt { .. })),
            "absurd run"
        );
        assert!(matches!(read(&[1, 1], 4), Err(Error::Truncated { .. })));
        assert_eq!(read(&[0, 14, 0x80, 0x20], 4).unwrap().freqs[15], 4096);
    }
}
