//! What is wrong with a message.

/// A message breaks a rule of the protocol. Becomes `INVALID_ARGUMENT` on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A field that must be set is not.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// A field has a value that it cannot have.
    #[error("field `{field}`: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The rule that it breaks.
        why: String,
    },
}

impl ProtocolError {
    /// A field that breaks the rule `why`.
    pub fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { field, why: why.into() }
    }
}

impl From<ProtocolError> for tonic::Status {
    fn from(error: ProtocolError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}
