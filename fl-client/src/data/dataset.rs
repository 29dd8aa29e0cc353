//! Examples in memory: one compact copy of a set, and views of it that clients train on.

use std::ops::Range;
use std::sync::Arc;

use super::error::Error;
use super::rng::Rng;

/// Most classes of a data set.
pub(super) const MAX_CLASSES: usize = 256;

/// What a model predicts for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One of `classes` classes.
    Class,
    /// The token that follows each token of a text, one of `classes` tokens.
    NextToken,
    /// `classes` numbers.
    Numbers,
}

/// Shape of a model's input and what the model predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// Channels, height, width of one example. A signal has height 1, a row of a table is `[columns, 1, 1]`, a text is
    /// `[1, 1, tokens]`.
    pub shape: [usize; 3],
    /// Values that the model returns: number of classes (1 to 256), size of the vocabulary, or how many numbers are predicted.
    pub classes: usize,
    /// What the values mean.
    pub target: Target,
}

impl Input {
    /// Examples of one of `classes` classes each.
    pub const fn of_classes(shape: [usize; 3], classes: usize) -> Self {
        Self {
            shape,
            classes,
            target: Target::Class,
        }
    }

    /// Texts of `tokens` tokens, each of a vocabulary of `vocabulary`.
    pub const fn of_text(tokens: usize, vocabulary: usize) -> Self {
        Self {
            shape: [1, 1, tokens],
            classes: vocabulary,
            target: Target::NextToken,
        }
    }

    /// Examples for each of which `count` numbers are predicted.
    pub const fn of_numbers(shape: [usize; 3], count: usize) -> Self {
        Self {
            shape,
            classes: count,
            target: Target::Numbers,
        }
    }

    /// Values of one example.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether an example holds no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The values of all examples, one after another, row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// Bytes as in the file; a model sees `(byte / 255 - mean) / std`, per channel.
    Bytes {
        /// `[examples * channels * height * width]`.
        values: Vec<u8>,
        /// Mean of each channel on the scale 0 to 1.
        mean: Vec<f32>,
        /// Standard deviation of each channel on the scale 0 to 1, above 0.
        std: Vec<f32>,
    },
    /// Numbers a model sees as they are. Shape: `[examples * channels * height * width]`.
    Floats(Vec<f32>),
    /// Stretches of one long recording, which may overlap; a model sees each channel times its scale.
    Windows {
        /// `[samples * channels]`, one sample of all channels after another.
        signals: Vec<i16>,
        /// First sample of each example.
        starts: Vec<u32>,
        /// Scale of each channel.
        scale: Vec<f32>,
    },
}

/// Labelled examples.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    features: Features,
    labels: Vec<u8>,
    input: Input,
    /// Name of each class, or nothing if classes are numbers.
    names: Arc<[String]>,
}

impl Dataset {
    /// Puts features and labels together. Shapes: `features: [labels.len() * input.len()]`.
    ///
    /// # Errors
    /// `Config` if the lengths do not agree, a label is not below `input.classes`, or a scale is unusable.
    pub fn new(features: Features, labels: Vec<u8>, input: Input) -> Result<Self, Error> {
        let len = match &features {
            Features::Bytes { values, mean, std } => {
                let usable = |s: &f32| s.is_finite() && *s > 0.0;
                if mean.len() != input.shape[0] || std.len() != input.shape[0] || !std.iter().all(usable) {
                    return Err(Error::config(
                        "features",
                        "need one mean and one positive deviation a channel",
                    ));
                }
                values.len()
            }
            Features::Floats(values) => values.len(),
            Features::Windows { signals, starts, scale } => {
                let ([channels, height, samples], rows) = (input.shape, signals.len() / scale.len().max(1));
                if scale.len() != channels || height != 1 || starts.iter().any(|&s| s as usize + samples > rows) {
                    return Err(Error::config(
                        "features",
                        "need windows within the signals and a scale a channel",
                    ));
                }
                starts.len() * input.len()
            }
        };
        if labels.len().checked_mul(input.len()) != Some(len) {
            let want = format!(
                "{} labels of {:?} need as many values, found {len}",
                labels.len(),
                input.shape
            );
            return Err(Error::config("features", want));
        }
        if let Some(label) = labels.iter().find(|&&l| usize::from(l) >= input.classes) {
            return Err(Error::config(
                "labels",
                format!("hold {label}, but there are {} classes", input.classes),
            ));
        }
        Ok(Self {
            features,
            labels,
            input,
            names: Arc::default(),
        })
    }

    /// The same set, with names of its classes. Shapes: `names: [input.classes]`.
    ///
    /// # Errors
    /// `Config` if there is another number of names.
    pub fn with_class_names(self, names: Vec<String>) -> Result<Self, Error> {
        if names.len() != self.input.classes {
            let why = format!("has {} names for {} classes", names.len(), self.input.classes);
            return Err(Error::config("classes", why));
        }
        Ok(Self {
            names: names.into(),
            ..self
        })
    }

    /// Name of each class; empty if classes are numbers.
    pub fn class_names(&self) -> &[String] {
        &self.names
    }

    /// Shape of an example and number of classes.
    pub fn input(&self) -> Input {
        self.input
    }

    /// Number of examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Label of each example.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The values as they are kept.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// A new set of the examples at `indices`, in that order. Overlapping windows share their samples.
    ///
    /// # Panics
    /// If an index is not below [`Dataset::len`].
    fn only(&self, indices: &[u32]) -> Self {
        let len = self.input.len();
        let range = |&index: &u32| index as usize * len..(index as usize + 1) * len;
        let features = match &self.features {
            Features::Bytes { values, mean, std } => Features::Bytes {
                values: gathered(values, len * indices.len(), indices.iter().map(range)),
                mean: mean.clone(),
                std: std.clone(),
            },
            Features::Floats(values) => {
                Features::Floats(gathered(values, len * indices.len(), indices.iter().map(range)))
            }
            Features::Windows { signals, starts, scale } => {
                let (channels, samples) = (scale.len(), self.input.shape[2]);
                let own: Vec<u32> = indices.iter().map(|&index| starts[index as usize]).collect();
                let stretches = stretches(&own, samples);
                let ranges = || stretches.iter().map(|(from, to)| from * channels..to * channels);
                // The new start of each stretch.
                let firsts: Vec<usize> = stretches
                    .iter()
                    .scan(0, |sum, (from, to)| Some(std::mem::replace(sum, *sum + (to - from))))
                    .collect();
                let moved = |&start: &u32| {
                    let at = stretches.partition_point(|(from, _)| *from <= start as usize) - 1;
                    (firsts[at] + start as usize - stretches[at].0) as u32
                };
                Features::Windows {
                    signals: gathered(signals, ranges().map(|range| range.len()).sum(), ranges()),
                    starts: own.iter().map(moved).collect(),
                    scale: scale.clone(),
                }
            }
        };
        Self {
            features,
            labels: indices.iter().map(|&index| self.labels[index as usize]).collect(),
            input: self.input,
            names: self.names.clone(),
        }
    }

    /// Appends the values of example `index`, as a model sees them, to `out`. Shapes: adds `[input.len()]`.
    ///
    /// # Panics
    /// If `index` is not below [`Dataset::len`].
    fn append(&self, index: usize, out: &mut Vec<f32>) {
        let len = self.input.len();
        let range = index * len..(index + 1) * len;
        match &self.features {
            Features::Floats(values) => out.extend_from_slice(&values[range]),
            Features::Bytes { values, mean, std } => {
                let plane = len / self.input.shape[0].max(1);
                for (bytes, (mean, std)) in values[range].chunks_exact(plane.max(1)).zip(mean.iter().zip(std)) {
                    let (scale, shift) = (1.0 / (255.0 * std), -mean / std);
                    out.extend(bytes.iter().map(|&b| f32::from(b) * scale + shift));
                }
            }
            Features::Windows { signals, starts, scale } => {
                let first = starts[index] as usize * scale.len();
                let samples = signals[first..first + len].chunks_exact(scale.len());
                for (channel, scale) in scale.iter().enumerate() {
                    out.extend(samples.clone().map(|sample| f32::from(sample[channel]) * scale));
                }
            }
        }
    }
}

/// The values of `ranges`, `len` in total, concatenated.
fn gathered<T: Copy>(values: &[T], len: usize, ranges: impl Iterator<Item = Range<usize>>) -> Vec<T> {
    let mut out = Vec::with_capacity(len);
    ranges.for_each(|range| out.extend_from_slice(&values[range]));
    out
}

/// The samples that windows of `samples` from `starts` cover: disjoint stretches from first to past the last, in order.
fn stretches(starts: &[u32], samples: usize) -> Vec<(usize, usize)> {
    let mut starts: Vec<usize> = starts.iter().map(|&start| start as usize).collect();
    starts.sort_unstable();
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for start in starts {
        match stretches.last_mut().filter(|(_, to)| start <= *to) {
            Some((_, to)) => *to = start + samples,
            None => stretches.push((start, start + samples)),
        }
    }
    stretches
}

/// Some examples of a set that several clients may share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Examples {
    set: Arc<Dataset>,
    indices: Arc<[u32]>,
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
        self.set.input
    }

    /// Name of each class; empty if classes are numbers.
    pub fn class_names(&self) -> &[String] {
        &self.set.names
    }

    /// Indices of the examples in the set.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Number of examples of each class. Shapes: `[classes]`.
    pub fn class_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.set.input.classes];
        self.indices
            .iter()
            .for_each(|&i| counts[usize::from(self.set.labels[i as usize])] += 1);
        counts
    }

    /// Positions `0..len` in an order that depends on `seed` alone.
    pub fn shuffled(&self, seed: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.indices.len() as u32).collect();
        Rng::new(seed).shuffle(&mut order);
        order
    }

    /// Replaces `values` and `labels` by those of the examples at `positions`, as a model sees them.
    /// Shapes: `values: [positions.len() * input.len()]`, `labels: [positions.len()]`.
    ///
    /// # Panics
    /// If a position is not below [`Examples::len`].
    pub fn batch(&self, positions: &[u32], values: &mut Vec<f32>, labels: &mut Vec<u32>) {
        values.clear();
        labels.clear();
        for &position in positions {
            let index = self.indices[position as usize] as usize;
            self.set.append(index, values);
            labels.push(u32::from(self.set.labels[index]));
        }
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
}

#[cfg(test)]
mod tests {
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
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        all.batch(&[0], &mut values, &mut labels);
        assert_eq!(labels, [2]);
        for (have, want) in values.iter().zip([0.0, 1.0, 0.0, 0.4]) {
            assert!((have - want).abs() < 1e-6, "{values:?}");
        }
    }

    /// What a model sees of all `examples`.
    fn seen(examples: &Examples) -> (Vec<f32>, Vec<u32>) {
        let positions: Vec<u32> = (0..examples.len() as u32).collect();
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        examples.batch(&positions, &mut values, &mut labels);
        (values, labels)
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
        for features in [bytes, floats, windows] {
            let labels = (0..count).map(|i| (i % 3) as u8).collect();
            let set = Arc::new(Dataset::new(features, labels, input).unwrap());
            for own in [vec![], vec![39], vec![7, 3, 3, 38], (0..39).rev().collect()] {
                let own = Examples::new(set.clone(), own).unwrap();
                let compact = own.clone().compact();
                assert_eq!(seen(&compact), seen(&own));
                assert_eq!(compact.set.len(), own.len());
                // What is kept is a sound set.
                let Dataset {
                    features,
                    labels,
                    input,
                    ..
                } = compact.set.as_ref().clone();
                assert!(Dataset::new(features, labels, input).is_ok());
            }
            let all = Examples::all(set.clone());
            assert!(Arc::ptr_eq(&all.compact().set, &set), "there is nothing to drop");
        }
    }

    #[test]
    fn overlapping_windows_are_kept_once() {
        assert_eq!(stretches(&[10, 0, 2, 14, 30, 10], 4), [(0, 6), (10, 18), (30, 34)]);
    }

    #[test]
    fn labels_and_lengths_are_checked() {
        assert!(Dataset::new(Features::Floats(vec![0.0; 7]), vec![0, 1], INPUT).is_err());
        assert!(Dataset::new(Features::Floats(vec![0.0; 8]), vec![0, 3], INPUT).is_err());
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
