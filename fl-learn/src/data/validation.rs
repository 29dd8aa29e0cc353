//! A validation part: training examples that are kept out of training, to choose settings without looking at the test
//! set.

use super::error::Error;
use super::examples::{ClientData, Examples};
use super::rng::Rng;

/// Consecutive windows of a recording that stay together: neighbors overlap, and only those at an end of a block have a
/// neighbor in the other part.
const BLOCK: usize = 16;

impl ClientData {
    /// Replaces the test part with a `share` of the training examples, which are then no longer trained on. `seed`
    /// draws them. A client with at least two examples keeps at least one in each part; the test examples are dropped
    /// unread.
    ///
    /// # Errors
    /// `Config` if `share` is not above 0 and below 1.
    pub fn validation(self, share: f64, seed: u64) -> Result<Self, Error> {
        check_validation(share)?;
        let len = self.train.len();
        let count = match len {
            0 | 1 => 0,
            _ => ((share * len as f64).round() as usize).clamp(1, len - 1),
        };
        // A small set is cut into blocks of single examples rather than into one block.
        let block = if self.train.overlap() && len >= 16 * BLOCK {
            BLOCK
        } else {
            1
        };
        let mut blocks: Vec<usize> = (0..len.div_ceil(block)).collect();
        Rng::of(&[seed, 8]).shuffle(&mut blocks);
        let mut held = vec![false; len];
        let drawn = blocks.into_iter().flat_map(|at| at * block..len.min((at + 1) * block));
        drawn.take(count).for_each(|at| held[at] = true);
        let part = |wanted: bool| -> Examples {
            let own = self.train.indices().iter().zip(&held);
            self.train.at(own
                .filter(|(_, held)| **held == wanted)
                .map(|(index, _)| *index)
                .collect())
        };
        Ok(Self {
            train: part(false),
            test: part(true),
        })
    }
}

/// Succeeds if `share` leaves examples in both parts of a large set.
///
/// # Errors
/// `Config` if it is not above 0 and below 1.
pub fn check_validation(share: f64) -> Result<(), Error> {
    if share > 0.0 && share < 1.0 {
        return Ok(());
    }
    let why = format!("is {share}, but must be above 0 and below 1: a share of each client's training examples");
    Err(Error::config("validation", why))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::dataset::Dataset;
    use super::super::features::Features;
    use super::super::input::Input;
    use super::*;

    const INPUT: Input = Input::of_classes([2, 1, 2], 3);

    fn data(features: Features, len: usize, train: Vec<u32>) -> ClientData {
        let set = Arc::new(Dataset::new(features, vec![0; len], INPUT).unwrap());
        ClientData {
            test: Examples::all(set.clone()),
            train: Examples::new(set, train).unwrap(),
        }
    }

    fn floats(len: usize, train: Vec<u32>) -> ClientData {
        data(Features::Floats(vec![0.0; len * 4]), len, train)
    }

    proptest! {
        #[test]
        fn both_parts_together_are_the_training_examples(len in 0usize..400, share in 0.001f64..0.999, seed: u64) {
            let train: Vec<u32> = (0..len as u32).map(|at| at * 2).collect();
            let cut = floats(len * 2 + 1, train.clone()).validation(share, seed).unwrap();
            let mut both = [cut.train.indices(), cut.test.indices()].concat();
            both.sort_unstable();
            prop_assert_eq!(both, train);
            let expected = if len < 2 { 0 } else { ((share * len as f64).round() as usize).clamp(1, len - 1) };
            prop_assert_eq!(cut.test.len(), expected);
        }
    }

    #[test]
    fn the_seed_draws_the_part() {
        let cut = |seed| {
            let cut = floats(100, (0..100).collect()).validation(0.1, seed).unwrap();
            cut.test.indices().to_vec()
        };
        assert_eq!(cut(1), cut(1));
        assert_ne!(cut(1), cut(2));
    }

    #[test]
    fn overlapping_windows_are_held_out_in_blocks() {
        let windows = Features::Windows {
            signals: vec![0; 1000],
            starts: (0..400).collect(),
            scale: vec![1.0, 1.0],
        };
        let cut = data(windows, 400, (0..400).collect()).validation(0.2, 3).unwrap();
        let held = cut.test.indices();
        let ends = held.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert_eq!(held.len(), 80);
        assert!(ends < 80 / BLOCK, "{held:?}");
    }

    #[test]
    fn a_part_as_large_as_the_data_is_refused() {
        for share in [0.0, 1.0, 1.5, -0.1, f64::NAN] {
            let error = floats(4, (0..4).collect())
                .validation(share, 1)
                .unwrap_err()
                .to_string();
            assert!(error.contains("validation"), "{error}");
        }
    }
}
