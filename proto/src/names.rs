//! Names that travel or become file names: checked once, then trusted.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::ProtocolError;

// Longest name, in bytes.
const MAX_NAME: usize = 64;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ProtocolError;

            fn from_str(text: &str) -> Result<Self, ProtocolError> {
                check($field, text)?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = ProtocolError;

            fn try_from(text: String) -> Result<Self, ProtocolError> {
                text.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A client's name, which is the common name of its certificate.
    ClientId,
    "client"
);
name!(
    /// A run's name.
    RunName,
    "run"
);

/// Accepts plain file names: letters, digits, `-`, `_` and `.`, with neither a dot nor a dash in front.
fn check(field: &'static str, text: &str) -> Result<(), ProtocolError> {
    let is_plain = text
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'));
    if text.is_empty() || text.len() > MAX_NAME || !is_plain || text.starts_with(['.', '-']) {
        return Err(ProtocolError::invalid(
            field,
            format!(
                "`{text}` must be 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`, and begin with a letter or digit"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_file_names_are_names() {
        for good in ["camera-07", "a", "Ward_3.left", "0"] {
            assert_eq!(good.parse::<ClientId>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "-x", "a b", "é", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<RunName>().is_err(), "{bad:?}");
        }
    }
}
