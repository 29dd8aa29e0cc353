//! What a certificate allows its holder.

use std::fmt;
use std::str::FromStr;

use crate::error::ProtocolError;

/// The role of a certificate's holder: the organizational unit of its subject (RFC 5280, section 4.1.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Trains and evaluates.
    #[default]
    Client,
    /// Evaluates models, and is never asked to train.
    Evaluator,
    /// Takes no part in runs.
    Operator,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Client, Self::Evaluator, Self::Operator];

    /// The name in certificates and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Evaluator => "evaluator",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| ProtocolError::invalid("role", format!("`{text}` must be client, evaluator or operator")))
    }
}
