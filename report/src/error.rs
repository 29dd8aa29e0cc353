//! Why a question to a report has no answer.

/// Why a question has no answer. The text is for the person who asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The run does not have this round.
    #[error("the run has no round {round}; {has}")]
    NoRound {
        /// The round asked for.
        round: u64,
        /// The rounds that the run has.
        has: String,
    },
    /// The run does not have this client.
    #[error("the run has no client {client:?}; {has}")]
    NoClient {
        /// The name asked for, cut to 64 characters.
        client: String,
        /// The nearest names.
        has: String,
    },
    /// A report does not hold the answer.
    #[error("{0}")]
    NotKept(&'static str),
    /// A costs file is not TOML, or has a key that is unknown or of another type.
    #[error("{0}")]
    Syntax(String),
    /// A value of a costs file is out of range.
    #[error("`{key}` is {value}, but {rule}")]
    Value {
        /// The key with its table.
        key: String,
        /// The value as written.
        value: String,
        /// The rule that the value breaks.
        rule: &'static str,
    },
    /// A form cannot show this answer.
    #[error("{form} shows {shows}, not {asked}; these forms do: {able}")]
    NoForm {
        /// The name of the form.
        form: &'static str,
        /// What the form shows.
        shows: String,
        /// What was asked.
        asked: &'static str,
        /// The forms that show it.
        able: String,
    },
    /// Writing a form failed.
    #[error("{form} cannot be written: {why}")]
    Form {
        /// The name of the form.
        form: &'static str,
        /// Why.
        why: String,
    },
}

impl Error {
    /// Wraps what the writer of a form says.
    pub(crate) fn form<E: std::fmt::Display>(form: &'static str) -> impl Fn(E) -> Self {
        move |why| Self::Form {
            form,
            why: why.to_string(),
        }
    }
}
