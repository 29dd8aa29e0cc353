//! Bit streams, least significant bit first.

#[derive(Debug)]
pub(crate) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    held: u64,
    count: u32,
}

impl<'a> BitWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, held: 0, count: 0 }
    }

    /// Appends the lowest `count` bits of `value`, whose other bits are zero. Range: `count <= 32`.
    #[inline]
    pub(crate) fn put(&mut self, value: u32, count: u32) {
        self.held |= u64::from(value) << self.count;
        self.count += count;
        if self.count >= 32 {
            self.out.extend_from_slice(&(self.held as u32).to_le_bytes());
            self.held >>= 32;
            self.count -= 32;
        }
    }

    /// Flushes the buffered bits, padded with zero bits to a whole byte.
    pub(crate) fn finish(self) {
        let bytes = self.held.to_le_bytes();
        self.out.extend_from_slice(&bytes[..self.count.div_ceil(8) as usize]);
    }
}

/// Reads bits in order. Past the end it returns zeros, and [`BitReader::finish`] returns `false`.
#[derive(Debug, Clone)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    next: usize,
    held: u64,
    count: u32,
    used: u64,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            next: 0,
            held: 0,
            count: 0,
            used: 0,
        }
    }

    /// Reads `count` bits. Range: `count <= 32`.
    #[inline]
    pub(crate) fn take(&mut self, count: u32) -> u32 {
        self.fill();
        let value = self.held & ((1 << count) - 1);
        self.skip(count);
        value as u32
    }

    /// Reads a unary number: the count of ones before the first zero, which is consumed. After `limit` ones it stops
    /// without a zero. Range: `limit <= 48`.
    #[inline]
    pub(crate) fn take_ones(&mut self, limit: u32) -> u32 {
        self.fill();
        let ones = self.held.trailing_ones();
        if ones >= limit {
            self.skip(limit);
            return limit;
        }
        self.skip(ones + 1);
        ones
    }

    /// Whether every byte was consumed, no bit was read past the end, and the padding bits are zero.
    pub(crate) fn finish(&self) -> bool {
        let total = self.bytes.len() as u64 * 8;
        let padding = total.checked_sub(self.used).filter(|&bits| bits < 8);
        padding.is_some_and(|bits| {
            self.bytes
                .last()
                .is_none_or(|&byte| u32::from(byte) >> (8 - bits) == 0 || bits == 0)
        })
    }

    /// The next `count` bits, which must be buffered (see [`BitReader::fill`]).
    #[inline(always)]
    pub(crate) fn peek(&self, count: u32) -> u32 {
        (self.held & ((1 << count) - 1)) as u32
    }

    /// Consumes `count` buffered bits.
    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) {
        self.held >>= count;
        self.count -= count;
        self.used += u64::from(count);
    }

    /// Refills the buffer to at least 56 bits.
    #[inline]
    pub(crate) fn fill(&mut self) {
        if let Some(word) = self.bytes.get(self.next..).and_then(|rest| rest.first_chunk()) {
            self.held |= u64::from_le_bytes(*word) << self.count;
            self.next += ((63 - self.count) >> 3) as usize;
            self.count |= 56;
            return;
        }
        while self.count < 56 {
            if let Some(&byte) = self.bytes.get(self.next) {
                self.held |= u64::from(byte) << self.count;
                self.next += 1;
            }
            self.count += 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip_and_the_end_is_known() {
        let fields: Vec<(u32, u32)> = (0..500u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> (32 - (i % 31 + 1)), i % 31 + 1))
            .collect();
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        fields.iter().for_each(|&(value, count)| writer.put(value, count));
        writer.finish();
        let mut reader = BitReader::new(&bytes);
        assert!(fields.iter().all(|&(value, count)| reader.take(count) == value));
        assert!(reader.finish());
        let mut short = BitReader::new(&bytes[..bytes.len() - 1]);
        for &(_, count) in &fields {
            short.take(count);
        }
        assert!(!short.finish());
    }

    #[test]
    fn set_padding_is_noticed() {
        let mut reader = BitReader::new(&[0b1000_0011]);
        assert_eq!(reader.take_ones(48), 2);
        assert!(!reader.finish());
        let mut reader = BitReader::new(&[0b0000_0011]);
        assert_eq!(reader.take_ones(48), 2);
        assert!(reader.finish());
    }
}
