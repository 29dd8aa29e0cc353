//! Token ids in memory.

use std::ops::Range;

use super::error::Error;

pub(super) const MAX_VOCABULARY: usize = 1 << 20;

/// Token ids below the size of a vocabulary, each in as few bytes as the vocabulary allows.
#[derive(Debug, Clone, PartialEq)]
pub struct Tokens {
    vocabulary: usize,
    ids: Ids,
}

#[derive(Debug, Clone, PartialEq)]
enum Ids {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
}

impl Tokens {
    /// No tokens yet, of a vocabulary of `vocabulary`.
    pub fn new(vocabulary: usize) -> Self {
        let ids = match vocabulary {
            ..=0x100 => Ids::One(Vec::new()),
            0x101..=0x1_0000 => Ids::Two(Vec::new()),
            _ => Ids::Four(Vec::new()),
        };
        Self { vocabulary, ids }
    }

    /// Appends a token.
    ///
    /// # Errors
    /// `Config` if it is not below the size of the vocabulary.
    pub fn push(&mut self, token: u32) -> Result<(), Error> {
        if token as usize >= self.vocabulary {
            let why = format!("hold {token}, but the vocabulary has {} tokens", self.vocabulary);
            return Err(Error::config("tokens", why));
        }
        match &mut self.ids {
            // Below the vocabulary, and therefore in range.
            Ids::One(ids) => ids.push(token as u8),
            Ids::Two(ids) => ids.push(token as u16),
            Ids::Four(ids) => ids.push(token),
        }
        Ok(())
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        match &self.ids {
            Ids::One(ids) => ids.len(),
            Ids::Two(ids) => ids.len(),
            Ids::Four(ids) => ids.len(),
        }
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the tokens of `range` to `out`.
    ///
    /// # Panics
    /// If the range is not within `0..len`.
    pub fn append(&self, range: Range<usize>, out: &mut Vec<u32>) {
        match &self.ids {
            Ids::One(ids) => out.extend(ids[range].iter().map(|&id| u32::from(id))),
            Ids::Two(ids) => out.extend(ids[range].iter().map(|&id| u32::from(id))),
            Ids::Four(ids) => out.extend_from_slice(&ids[range]),
        }
    }

    /// The tokens of `ranges`, concatenated.
    ///
    /// # Panics
    /// As [`Tokens::append`].
    pub(super) fn only(&self, ranges: &[Range<usize>]) -> Self {
        let ids = match &self.ids {
            Ids::One(ids) => Ids::One(gathered(ids, ranges)),
            Ids::Two(ids) => Ids::Two(gathered(ids, ranges)),
            Ids::Four(ids) => Ids::Four(gathered(ids, ranges)),
        };
        Self { ids, ..*self }
    }
}

pub(super) fn gathered<T: Copy>(values: &[T], ranges: &[Range<usize>]) -> Vec<T> {
    let mut out = Vec::with_capacity(ranges.iter().map(ExactSizeIterator::len).sum());
    ranges
        .iter()
        .for_each(|range| out.extend_from_slice(&values[range.clone()]));
    out
}

/// Cuts the tokens of `stretch` into examples of `length` tokens: for each the tokens to predict, which follow the tokens that
/// it is given. Every token but the first is predicted in exactly one example; the last example may be shorter.
pub(super) fn cut(stretch: Range<u32>, length: usize) -> impl Iterator<Item = Range<u32>> {
    let end = stretch.end;
    let length = length.clamp(1, u32::MAX as usize) as u32;
    let mut from = stretch.start.saturating_add(1);
    std::iter::from_fn(move || {
        let piece = from..from.saturating_add(length).min(end);
        from = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_come_back_whatever_their_width() {
        for vocabulary in [1usize, 256, 257, 65_536, 65_537, 1 << 20] {
            let mut tokens = Tokens::new(vocabulary);
            let last = vocabulary as u32 - 1;
            for token in [0, last, last / 2] {
                tokens.push(token).unwrap();
            }
            let error = tokens.push(vocabulary as u32).unwrap_err().to_string();
            assert!(error.contains("vocabulary has"), "{error}");
            let mut out = Vec::new();
            tokens.append(0..3, &mut out);
            assert_eq!(out, [0, last, last / 2]);
            let mut out = Vec::new();
            tokens.only(&[1..2, 0..2]).append(0..3, &mut out);
            assert_eq!(out, [last, 0, last]);
        }
    }

    proptest! {
        #[test]
        fn every_token_but_the_first_is_predicted_once(start in 0u32..50, len in 0u32..300, length in 1usize..70) {
            let mut next = start + 1;
            for piece in cut(start..start + len, length) {
                prop_assert_eq!(piece.start, next);
                prop_assert!(piece.len() == length || piece.end == start + len);
                next = piece.end;
            }
            prop_assert_eq!(next.max(start + 1), (start + len).max(start + 1));
        }
    }
}
