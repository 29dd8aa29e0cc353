//! The dimensions of a tensor train, and the ranks that they allow.

use crate::layout::Shape;
use crate::reduce::low_rank::pays;
use crate::rules::spectrum::MAX_RANK;

// Largest rank of an encoder: its eigenproblems take time in proportion to the cube.
pub(crate) const MOST: u32 = 256;

/// Three ranks.
pub(crate) type Ranks = [u32; 3];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dims {
    pub(crate) shape: Shape,
    pub(crate) dims: [usize; 4],
}

impl Dims {
    /// Those of a matrix whose columns are split into `c` parts, a divisor of their number.
    pub(crate) fn new(shape: Shape, c: usize) -> Self {
        let a = divisor(shape.rows);
        Self {
            shape,
            dims: [a, shape.rows / a, c, shape.cols / c],
        }
    }

    /// Those of a matrix, a convolution of `places` values for each pair of output and input if that is more than one.
    pub(crate) fn of(shape: Shape, places: usize) -> Self {
        if places > 1 && shape.cols.is_multiple_of(places) {
            Self::new(shape, shape.cols / places)
        } else {
            Self::new(shape, divisor(shape.cols))
        }
    }

    /// The largest rank `at` after those before it.
    fn limit(&self, ranks: Ranks, at: usize) -> usize {
        let [a, b, c, d] = self.dims;
        let [first, second, _] = ranks.map(|rank| rank as usize);
        match at {
            0 => a.min(b.saturating_mul(c).saturating_mul(d)),
            1 => first.saturating_mul(b).min(c.saturating_mul(d)),
            _ => second.saturating_mul(c).min(d),
        }
    }

    /// Whether the rank `at` is possible, if those after it are 1. This bounds a decoder: both halves, the products of
    /// the first two cores and of the last two, and all cores hold fewer numbers than the matrix.
    pub(crate) fn fits(&self, ranks: Ranks, at: usize) -> bool {
        let rank = ranks[at];
        (1..=MAX_RANK).contains(&rank) && rank as usize <= self.limit(ranks, at) && self.is_less(ranks)
    }

    /// Whether the cores hold fewer numbers than the matrix, and so do both halves.
    pub(crate) fn is_less(&self, ranks: Ranks) -> bool {
        pays(self.shape, ranks[1] as usize) && self.numbers(ranks) < self.shape.len()
    }

    pub(crate) fn cores(&self, ranks: Ranks) -> [Shape; 4] {
        let [a, b, c, d] = self.dims;
        let [first, second, third] = ranks.map(|rank| rank as usize);
        let shape = |rows, cols| Shape { rows, cols };
        [
            shape(a, first),
            shape(first * b, second),
            shape(second * c, third),
            shape(third, d),
        ]
    }

    fn numbers(&self, ranks: Ranks) -> usize {
        let sizes = self.cores(ranks).map(|core| core.rows.saturating_mul(core.cols));
        sizes.into_iter().fold(0, usize::saturating_add)
    }

    /// `ranks`, each at most what its place can have.
    pub(crate) fn cut(&self, mut ranks: Ranks) -> Ranks {
        for at in 0..3 {
            ranks[at] = ranks[at].min(u32::try_from(self.limit(ranks, at)).unwrap_or(MOST));
        }
        ranks
    }

    /// The largest equal ranks, cut, whose cores hold at most `most` numbers.
    pub(crate) fn within(&self, most: usize) -> Option<Ranks> {
        let ranks = (1..=MOST).map(|rank| self.cut([rank; 3]));
        ranks
            .take_while(|&ranks| self.is_less(ranks) && self.numbers(ranks) <= most)
            .last()
    }
}

/// The largest divisor that is at most the root; 1 of 0.
fn divisor(len: usize) -> usize {
    let mut divisors = (1..=len.isqrt()).rev().filter(|first| len.is_multiple_of(*first));
    divisors.next().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_divisors_and_ranks_fill_the_share() {
        assert_eq!([0, 1, 7, 12, 36, 200].map(divisor), [1, 1, 1, 3, 6, 10]);
        let dims = Dims::of(Shape { rows: 12, cols: 35 }, 1);
        assert_eq!(dims.dims, [3, 4, 5, 7]);
        assert_eq!(Dims::of(Shape { rows: 8, cols: 36 }, 9).dims, [2, 4, 4, 9]);
        assert_eq!(dims.cut([99; 3]), [3, 12, 7]);
        assert_eq!((dims.within(19), dims.within(18)), (Some([1, 1, 1]), None));
        let mut before = 0;
        for most in [19, 50, 100, 300, 420] {
            let ranks = dims.within(most).unwrap();
            let numbers = dims.numbers(ranks);
            assert!(numbers <= most && numbers >= before, "{ranks:?}");
            before = numbers;
        }
        assert_eq!(Dims::of(Shape::row(400), 1).within(400), None, "a vector is sent whole");
    }
}
