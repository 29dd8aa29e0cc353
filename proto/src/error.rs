//! Errors in messages.

use crate::foreign_text::foreign_text;
use crate::limits::MAX_REASON;

/// A message breaks a rule of the protocol. Becomes `INVALID_ARGUMENT` on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A required field is not set.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// A field has a value that breaks a rule.
    #[error("field `{field}`: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The broken rule.
        why: String,
    },
}

impl ProtocolError {
    /// The error of a field whose value breaks the rule `why`, which may quote it.
    pub fn invalid(field: &'static str, why: impl AsRef<str>) -> Self {
        let why = foreign_text(why.as_ref(), MAX_REASON);
        Self::Invalid { field, why }
    }
}

impl From<ProtocolError> for tonic::Status {
    fn from(error: ProtocolError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}
