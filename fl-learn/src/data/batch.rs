//! Examples as a model is given them.

/// A target that is not trained on and not evaluated: it fills up a text that is shorter than the others of its batch.
pub const IGNORED: u32 = u32::MAX;

/// Some examples, one after another.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// What the model is given. Shapes: `[examples * input.len()]`.
    pub values: Values,
    /// What it is to predict.
    pub targets: Targets,
}

/// What a model is given.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Numbers.
    Numbers(Vec<f32>),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// What a model is to predict.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// A class of each example, `[examples]`, or the token after each token, `[examples * tokens]`, where some may be
    /// [`IGNORED`].
    Classes(Vec<u32>),
    /// Numbers, `[examples * count]`.
    Numbers(Vec<f32>),
}

impl Values {
    /// The numbers; none if these are tokens.
    pub fn numbers(&self) -> &[f32] {
        match self {
            Self::Numbers(values) => values,
            Self::Tokens(_) => &[],
        }
    }

    /// The token ids; none if these are numbers.
    pub fn tokens(&self) -> &[u32] {
        match self {
            Self::Numbers(_) => &[],
            Self::Tokens(tokens) => tokens,
        }
    }
}

impl Targets {
    /// The classes or tokens; none if these are numbers.
    pub fn classes(&self) -> &[u32] {
        match self {
            Self::Classes(classes) => classes,
            Self::Numbers(_) => &[],
        }
    }

    /// The numbers; none if these are classes.
    pub fn numbers(&self) -> &[f32] {
        match self {
            Self::Classes(_) => &[],
            Self::Numbers(numbers) => numbers,
        }
    }
}
