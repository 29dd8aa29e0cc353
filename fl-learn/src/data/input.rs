//! The shape of an example and of an answer.

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
