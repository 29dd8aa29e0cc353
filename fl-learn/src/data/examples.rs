//! Views of a set: the examples of a client.

use std::fmt;
use std::sync::Arc;

use super::batch::Batch;
use super::dataset::Dataset;
use super::error::Error;
use super::features::Features;
use super::input::{Input, Target};
use super::rng::Rng;
use fl_client::ClassNames;

/// Some examples of a set that several clients may share. Cheap to clone.
#[derive(Clone)]
pub struct Examples {
    set: Arc<Dataset>,
    indices: Arc<[u32]>,
}

/// Nothing of the examples themselves: they must not get into a log.
impl fmt::Debug for Examples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.len();
        let input = self.input();
        f.debug_struct("Examples")
            .field("count", &count)
            .field("input", &input)
            .finish_non_exhaustive()
    }
}

impl Examples {
    /// All examples of `set`, in their order.
    pub fn all(set: Arc<Dataset>) -> Self {
        let indices = (0..set.len() as u32).collect();
        Self { set, indices }
    }

    /// The examples of `set` at `indices`, in that order.
    ///
    /// # Errors
    /// `Config` if an index is not below the set's length.
    pub fn new(set: Arc<Dataset>, indices: impl Into<Arc<[u32]>>) -> Result<Self, Error> {
        let indices = indices.into();
        match indices.iter().find(|&&i| i as usize >= set.len()) {
            Some(i) => Err(Error::config(
                "indices",
                format!("hold {i}, but the set has {} examples", set.len()),
            )),
            None => Ok(Self { set, indices }),
        }
    }

    /// All examples, or [`Examples::take`] with a limit.
    pub(super) fn at_most(self, limit: Option<u32>) -> Self {
        match limit {
            Some(limit) => self.take(limit as usize),
            None => self,
        }
    }

    /// `limit` examples spread evenly over these, or all of them if there are fewer.
    pub fn take(self, limit: usize) -> Self {
        if limit >= self.indices.len() {
            return self;
        }
        let indices = (0..limit)
            .map(|i| self.indices[i * self.indices.len() / limit])
            .collect();
        Self { indices, set: self.set }
    }

    /// The same examples in a set of their own, so that the rest of the set can leave memory. For a process of one client;
    /// clients that share a set use more memory with it.
    #[must_use]
    pub fn compact(self) -> Self {
        if self.indices.len() >= self.set.len() {
            return self;
        }
        Self::all(Arc::new(self.set.only(&self.indices)))
    }

    /// Number of examples.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Shape of an example and number of classes.
    pub fn input(&self) -> Input {
        self.set.input()
    }

    /// Name of each class or token; empty if they are numbers.
    pub fn class_names(&self) -> &[String] {
        self.set.class_names()
    }

    /// Lines about the file of the whole set, for `fl-client check`; empty unless the file is a table.
    pub fn notes(&self) -> &[String] {
        &self.set.notes
    }

    /// What the numbers of classes or tokens mean: their names, or the numbers themselves; `None` if numbers are predicted.
    pub fn named_classes(&self) -> Option<ClassNames> {
        let input = self.input();
        match (input.target, self.class_names()) {
            (Target::Numbers, _) => None,
            (_, []) => {
                let numbers: Vec<String> = (0..input.classes).map(|class| class.to_string()).collect();
                Some(ClassNames::of(&numbers))
            }
            (_, names) => Some(ClassNames::of(names)),
        }
    }

    /// Whether neighbors in the set share measurements, as windows of one recording do.
    pub(super) fn overlap(&self) -> bool {
        matches!(self.set.features(), Features::Windows { .. })
    }

    /// The examples at `indices` of the same set.
    pub(super) fn at(&self, indices: Vec<u32>) -> Self {
        Self {
            set: self.set.clone(),
            indices: indices.into(),
        }
    }

    /// Indices of the examples in the set.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Number of examples of each class, or how often each token is to be predicted; zeros if numbers are predicted.
    /// Shapes: `[classes]`.
    pub fn class_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.input().classes];
        self.indices
            .iter()
            .for_each(|&index| self.set.count(index, &mut counts));
        counts
    }

    /// Number of predictions: one for each example, or for each token of a text.
    pub fn targets(&self) -> u64 {
        self.indices.iter().map(|&index| self.set.targets(index)).sum()
    }

    /// Positions `0..len` in an order that depends on `seed` alone.
    pub fn shuffled(&self, seed: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.indices.len() as u32).collect();
        Rng::new(seed).shuffle(&mut order);
        order
    }

    /// The examples at `positions` as a model is given them.
    ///
    /// # Panics
    /// If a position is not below [`Examples::len`].
    pub fn batch(&self, positions: &[u32]) -> Batch {
        self.set
            .batch(positions.iter().map(|&position| self.indices[position as usize]))
    }
}

/// Training examples and held-out examples of one client.
#[derive(Debug, Clone)]
pub struct ClientData {
    /// Examples to train on.
    pub train: Examples,
    /// Examples to evaluate on; may be empty.
    pub test: Examples,
}

impl ClientData {
    /// The same examples, each part in a separate set: see [`Examples::compact`].
    #[must_use]
    pub fn compact(self) -> Self {
        Self {
            train: self.train.compact(),
            test: self.test.compact(),
        }
    }

    /// The same examples in sets of their own, with the mean of each value over the training examples in place of NaN in both.
    pub(super) fn filled(self) -> Result<Self, Error> {
        let mut sums = vec![(0.0f64, 0u32); self.train.input().len()];
        for position in 0..self.train.len() as u32 {
            let example = self.train.batch(&[position]);
            let known = sums.iter_mut().zip(example.values.numbers());
            for (sum, &value) in known.filter(|(_, value)| !value.is_nan()) {
                *sum = (sum.0 + f64::from(value), sum.1 + 1);
            }
        }
        if let Some(at) = sums.iter().position(|&(_, count)| count == 0) {
            let why = format!(
                "is \"mean\", but feature {} is missing in all training rows of this client",
                at + 1
            );
            return Err(Error::config("missing", format!("{why}; give a number")));
        }
        let means: Vec<f32> = sums
            .iter()
            .map(|&(sum, count)| (sum / f64::from(count)) as f32)
            .collect();
        let filled = |part: Examples| Examples::all(Arc::new(part.set.filled(&part.indices, &means)));
        let train = filled(self.train);
        let test = filled(self.test);
        Ok(Self { train, test })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::{Tokens, cut};
    use super::*;

    const INPUT: Input = Input::of_classes([2, 1, 2], 3);

    fn bytes() -> Dataset {
        let features = Features::Bytes {
            values: vec![0, 255, 51, 102, 0, 0, 255, 255],
            mean: vec![0.0, 0.2],
            std: vec![1.0, 0.5],
        };
        Dataset::new(features, vec![2, 0], INPUT).unwrap()
    }

    #[test]
    fn bytes_are_scaled_per_channel() {
        let all = Examples::all(Arc::new(bytes()));
        let batch = all.batch(&[0]);
        assert_eq!(batch.targets.classes(), [2]);
        let values = batch.values.numbers();
        for (have, want) in values.iter().zip([0.0, 1.0, 0.0, 0.4]) {
            assert!((have - want).abs() < 1e-6, "{values:?}");
        }
    }

    /// What a model sees of all `examples`.
    fn seen(examples: &Examples) -> Batch {
        let positions: Vec<u32> = (0..examples.len() as u32).collect();
        examples.batch(&positions)
    }

    #[test]
    fn a_compact_set_is_the_same_to_a_model_and_holds_no_other_example() {
        let mut rng = Rng::new(3);
        let (input, count) = (Input::of_classes([2, 1, 4], 3), 40u32);
        let bytes = Features::Bytes {
            values: (0..count * 8).map(|_| rng.below(256) as u8).collect(),
            mean: vec![0.1, 0.2],
            std: vec![0.3, 0.4],
        };
        let floats = Features::Floats((0..count * 8).map(|_| rng.unit() as f32).collect());
        let windows = Features::Windows {
            signals: (0..400).map(|_| rng.below(1000) as i16).collect(),
            starts: (0..count).map(|_| rng.below(197) as u32).collect(),
            scale: vec![0.5, 0.25],
        };
        let labels: Vec<u8> = (0..count).map(|i| (i % 3) as u8).collect();
        let labelled = [bytes, floats, windows].map(|features| Dataset::new(features, labels.clone(), input).unwrap());
        let numbers = Dataset::of_numbers(
            Features::Floats((0..count * 8).map(|_| rng.unit() as f32).collect()),
            (0..count * 2).map(|_| rng.unit() as f32).collect(),
            Input::of_numbers([2, 1, 4], 2),
        );
        let mut tokens = Tokens::new(500);
        (0..300).for_each(|_| tokens.push(rng.below(500) as u32).unwrap());
        // Two stretches that share no token, each with a short last example.
        let pieces = cut(0..118, 6).chain(cut(130..250, 6)).collect();
        let text = Dataset::of_text(Features::Text { tokens, pieces }, 6);
        for set in labelled.into_iter().chain([numbers.unwrap(), text.unwrap()]) {
            assert_eq!(set.len(), 40);
            let set = Arc::new(set);
            for own in [vec![], vec![39], vec![7, 3, 3, 38], (0..39).rev().collect()] {
                let own = Examples::new(set.clone(), own).unwrap();
                let compact = own.clone().compact();
                assert_eq!(seen(&compact), seen(&own));
                assert_eq!(compact.set.len(), own.len());
                assert_eq!(compact.targets(), own.targets());
            }
            let all = Examples::all(set.clone());
            assert!(Arc::ptr_eq(&all.compact().set, &set), "there is nothing to drop");
        }
    }

    #[test]
    fn indices_are_checked() {
        assert!(Examples::new(Arc::new(bytes()), vec![0, 2]).is_err());
    }

    #[test]
    fn a_shuffle_is_a_permutation_given_by_its_seed() {
        let set = Dataset::new(Features::Floats(vec![0.0; 400]), vec![0; 100], INPUT).unwrap();
        let all = Examples::all(Arc::new(set));
        let mut order = all.shuffled(7);
        assert_eq!(order, all.shuffled(7));
        assert_ne!(order, all.shuffled(8));
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
