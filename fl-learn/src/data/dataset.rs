//! Examples in memory: one compact copy of a set.

use std::sync::Arc;

use super::batch::{Batch, IGNORED, Targets, Values};
use super::error::Error;
use super::features::Features;
use super::input::{Input, Target};

pub(super) const MAX_CLASSES: usize = 256;

/// Examples with what is to be predicted for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    features: Features,
    truth: Truth,
    input: Input,
    /// Name of each class or token, or nothing if they are numbers.
    names: Arc<[String]>,
    /// What `check` shows of the file.
    pub(crate) notes: Arc<[String]>,
}

/// What is to be predicted.
#[derive(Debug, Clone, PartialEq)]
enum Truth {
    Classes(Vec<u8>),
    /// `[examples * count]`.
    Numbers(Vec<f32>),
    /// The tokens of the text itself.
    Text,
}

impl Dataset {
    /// Puts features and labels together. Shapes: `features: [labels.len() * input.len()]`.
    ///
    /// # Errors
    /// `Config` if the lengths do not agree, a label is not below `input.classes`, or a scale is unusable.
    pub fn new(features: Features, labels: Vec<u8>, input: Input) -> Result<Self, Error> {
        expect_values(&features, labels.len(), input, Target::Class)?;
        if let Some(label) = labels.iter().find(|&&l| usize::from(l) >= input.classes) {
            let why = format!("hold {label}, but there are {} classes", input.classes);
            return Err(Error::config("labels", why));
        }
        Ok(Self::of(features, Truth::Classes(labels), input))
    }

    /// Puts features and the numbers to predict together. Shapes: `features: [examples * input.len()]`,
    /// `numbers: [examples * input.classes]`.
    ///
    /// # Errors
    /// `Config` if the lengths do not agree, a number is not finite, or a scale is unusable.
    pub fn of_numbers(features: Features, numbers: Vec<f32>, input: Input) -> Result<Self, Error> {
        let examples = numbers.len() / input.classes.max(1);
        if input.classes == 0 || numbers.len() != examples * input.classes {
            let why = format!("are {}, but each example has {}", numbers.len(), input.classes);
            return Err(Error::config("targets", why));
        }
        expect_values(&features, examples, input, Target::Numbers)?;
        if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
            let why = format!("of example {} hold {}", at / input.classes, numbers[at]);
            return Err(Error::config("targets", why));
        }
        Ok(Self::of(features, Truth::Numbers(numbers), input))
    }

    /// A text, each of whose examples has up to `length` tokens: see [`Features::Text`].
    ///
    /// # Errors
    /// `Config` if a piece is longer, or not within the text.
    pub fn of_text(text: Features, length: usize) -> Result<Self, Error> {
        let Features::Text { tokens, pieces } = &text else {
            return Err(Error::config("features", "are not a text"));
        };
        let input = Input::of_text(length, tokens.vocabulary());
        expect_values(&text, pieces.len(), input, Target::NextToken)?;
        Ok(Self::of(text, Truth::Text, input))
    }

    fn of(features: Features, truth: Truth, input: Input) -> Self {
        Self {
            features,
            truth,
            input,
            names: Arc::default(),
            notes: Arc::default(),
        }
    }

    /// The same set, with names of its classes or tokens. Shapes: `names: [input.classes]`.
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

    /// The same set, with the names of `other`'s classes or tokens, of which it has as many.
    pub(super) fn named_as(self, other: &Self) -> Self {
        Self {
            names: other.names.clone(),
            ..self
        }
    }

    /// Name of each class or token; empty if they are numbers.
    pub fn class_names(&self) -> &[String] {
        &self.names
    }

    /// Shape of an example, and what is predicted.
    pub fn input(&self) -> Input {
        self.input
    }

    /// Number of examples.
    pub fn len(&self) -> usize {
        match (&self.truth, &self.features) {
            (Truth::Classes(labels), _) => labels.len(),
            (Truth::Numbers(numbers), _) => numbers.len() / self.input.classes.max(1),
            (Truth::Text, Features::Text { pieces, .. }) => pieces.len(),
            (Truth::Text, _) => 0,
        }
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Class of each example; empty if the examples have no classes.
    pub fn labels(&self) -> &[u8] {
        match &self.truth {
            Truth::Classes(labels) => labels,
            Truth::Numbers(_) | Truth::Text => &[],
        }
    }

    /// The values as they are kept.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// A new set of the examples at `indices`, in that order. Overlapping windows share their samples.
    pub(super) fn only(&self, indices: &[u32]) -> Self {
        let truth = match &self.truth {
            Truth::Classes(labels) => Truth::Classes(indices.iter().map(|&index| labels[index as usize]).collect()),
            Truth::Numbers(numbers) => {
                let mut own = Vec::with_capacity(indices.len() * self.input.classes);
                indices
                    .iter()
                    .for_each(|&at| own.extend_from_slice(self.numbers(numbers, at)));
                Truth::Numbers(own)
            }
            Truth::Text => Truth::Text,
        };
        Self {
            features: self.features.only(indices, self.input),
            truth,
            input: self.input,
            names: self.names.clone(),
            notes: self.notes.clone(),
        }
    }

    /// A new set of the examples at `indices`, with `means` in place of NaN. Shapes: `means: [input.len()]`.
    pub(super) fn filled(&self, indices: &[u32], means: &[f32]) -> Self {
        let mut own = self.only(indices);
        if let Features::Floats(values) = &mut own.features {
            let missing = values
                .iter_mut()
                .zip(means.iter().cycle())
                .filter(|(value, _)| value.is_nan());
            missing.for_each(|(value, mean)| *value = *mean);
        }
        own
    }

    fn numbers<'a>(&self, numbers: &'a [f32], index: u32) -> &'a [f32] {
        let count = self.input.classes;
        &numbers[index as usize * count..(index as usize + 1) * count]
    }

    /// The examples at `indices` as a model is given them.
    pub(super) fn batch(&self, indices: impl ExactSizeIterator<Item = u32>) -> Batch {
        if let Features::Text { .. } = self.features {
            return self.texts(indices);
        }
        let count = indices.len();
        let mut values = Vec::with_capacity(count * self.input.len());
        let mut classes = Vec::new();
        let mut numbers = Vec::new();
        for index in indices {
            self.features.append(index as usize, self.input, &mut values);
            match &self.truth {
                Truth::Classes(labels) => classes.push(u32::from(labels[index as usize])),
                Truth::Numbers(all) => numbers.extend_from_slice(self.numbers(all, index)),
                Truth::Text => {}
            }
        }
        let targets = match self.truth {
            Truth::Numbers(_) => Targets::Numbers(numbers),
            Truth::Classes(_) | Truth::Text => Targets::Classes(classes),
        };
        Batch {
            values: Values::Numbers(values),
            targets,
        }
    }

    /// A batch of texts. A short one is filled up with token 0, whose targets are ignored.
    fn texts(&self, indices: impl ExactSizeIterator<Item = u32>) -> Batch {
        let mut given = Vec::new();
        let mut wanted = Vec::new();
        if let Features::Text { tokens, pieces } = &self.features {
            let len = indices.len() * self.input.len();
            (given, wanted) = (Vec::with_capacity(len), Vec::with_capacity(len));
            for index in indices {
                let piece = &pieces[index as usize];
                let from = piece.start as usize;
                let to = piece.end as usize;
                tokens.append(from - 1..to - 1, &mut given);
                tokens.append(from..to, &mut wanted);
                let filled = given.len() + self.input.len() - piece.len();
                given.resize(filled, 0);
                wanted.resize(filled, IGNORED);
            }
        }
        Batch {
            values: Values::Tokens(given),
            targets: Targets::Classes(wanted),
        }
    }

    /// Adds to `counts` how often each class, or each token as the one to predict, occurs in example `index`; numbers are not
    /// counted. Shapes: `counts: [input.classes]`.
    pub(super) fn count(&self, index: u32, counts: &mut [u64]) {
        match (&self.truth, &self.features) {
            (Truth::Classes(labels), _) => counts[usize::from(labels[index as usize])] += 1,
            (Truth::Text, Features::Text { tokens, pieces }) => {
                let piece = &pieces[index as usize];
                let mut found = Vec::new();
                tokens.append(piece.start as usize..piece.end as usize, &mut found);
                found.iter().for_each(|&token| counts[token as usize] += 1);
            }
            _ => {}
        }
    }

    /// Number of classes, tokens or vectors of numbers that are predicted for example `index`.
    pub(super) fn targets(&self, index: u32) -> u64 {
        match &self.features {
            Features::Text { pieces, .. } => pieces[index as usize].len() as u64,
            _ => 1,
        }
    }
}

/// Succeeds if `features` are those of `examples` examples of `input`, for which a `target` is predicted.
fn expect_values(features: &Features, examples: usize, input: Input, target: Target) -> Result<(), Error> {
    let len = features.values(input)?;
    if input.target != target || matches!(features, Features::Text { .. }) != (target == Target::NextToken) {
        return Err(Error::config("features", format!("do not suit the target {target:?}")));
    }
    if examples > u32::MAX as usize {
        let why = format!(
            "hold {examples} examples, more than the {} that a set can have",
            u32::MAX
        );
        return Err(Error::config("features", why));
    }
    if examples.checked_mul(input.len()) != Some(len) {
        let want = format!(
            "{examples} labels of {:?} need as many values, found {len}",
            input.shape
        );
        return Err(Error::config("features", want));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tokens::Tokens;
    use super::*;

    const INPUT: Input = Input::of_classes([2, 1, 2], 3);

    #[test]
    fn labels_numbers_and_lengths_are_checked() {
        let floats = |count: usize| Features::Floats(vec![0.0; count]);
        assert!(Dataset::new(floats(7), vec![0, 1], INPUT).is_err());
        let endless = Dataset::new(floats(4), vec![0; 1 << 32], INPUT)
            .unwrap_err()
            .to_string();
        assert!(endless.contains("hold 4294967296 examples, more than"), "{endless}");
        assert!(Dataset::new(floats(8), vec![0, 3], INPUT).is_err());
        let two = Input::of_numbers([2, 1, 2], 2);
        assert!(Dataset::new(floats(8), vec![0, 1], two).is_err());
        assert!(Dataset::of_numbers(floats(8), vec![0.0; 4], INPUT).is_err());
        assert!(Dataset::of_numbers(floats(8), vec![0.0; 3], two).is_err());
        assert!(Dataset::of_numbers(floats(4), vec![0.0; 4], two).is_err());
        assert!(Dataset::of_numbers(floats(8), vec![], Input::of_numbers([2, 1, 2], 0)).is_err());
        let error = Dataset::of_numbers(floats(8), vec![0.0, 1.0, f32::NAN, 1.0], two).unwrap_err();
        assert!(error.to_string().contains("example 1 hold NaN"), "{error}");
        let set = Dataset::of_numbers(floats(8), vec![0.0, 1.0, 2.0, 3.0], two).unwrap();
        assert_eq!(set.batch([1, 0].into_iter()).targets.numbers(), [2.0, 3.0, 0.0, 1.0]);
    }

    fn text(pieces: Vec<std::ops::Range<u32>>) -> Result<Dataset, Error> {
        let mut tokens = Tokens::new(300);
        (0..10).try_for_each(|token| tokens.push(token * 29))?;
        Dataset::of_text(Features::Text { tokens, pieces }, 4)
    }

    #[test]
    fn a_text_is_shifted_by_one_token_and_a_short_example_is_filled_up() {
        let batch = text(vec![1..5, 8..10]).unwrap().batch([0, 1].into_iter());
        assert_eq!(batch.values.tokens(), [0, 29, 58, 87, 203, 232, 0, 0]);
        assert_eq!(batch.targets.classes(), [29, 58, 87, 116, 232, 261, IGNORED, IGNORED]);
    }

    #[test]
    fn pieces_outside_the_text_or_too_long_are_refused() {
        let empty = std::ops::Range { start: 4, end: 4 };
        for bad in [0..4, 1..6, 8..11, empty, 11..12] {
            assert!(text(vec![bad.clone()]).is_err(), "{bad:?}");
        }
        assert!(Dataset::of_text(Features::Floats(vec![]), 4).is_err());
    }
}
