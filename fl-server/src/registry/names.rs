//! Which names a token may give.

use std::fmt;
use std::str::FromStr;

use fl_proto::{ClientId, ProtocolError};
use serde::{Deserialize, Serialize};

/// One name, or a prefix and `*`: `camera-*` gives `camera-00`, `camera-01` and so on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum NamePattern {
    One(ClientId),
    Numbered { prefix: String },
}

/// Numbers that a pattern gives, at most.
const NUMBERS: u32 = 1_000_000;

impl NamePattern {
    /// Whether a device may ask for this name.
    pub(crate) fn allows(&self, name: &ClientId) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Numbered { prefix } => name.as_str().starts_with(prefix),
        }
    }

    /// The first name that is not taken, and its number, from number `from` on.
    pub(crate) fn first_free(&self, from: u32, taken: impl Fn(&ClientId) -> bool) -> Option<(ClientId, u32)> {
        match self {
            Self::One(one) => Some((one.clone(), 0)),
            Self::Numbered { prefix } => {
                for number in from..NUMBERS {
                    let name = format!("{prefix}{number:02}").parse().ok()?;
                    if !taken(&name) {
                        return Some((name, number));
                    }
                }
                None
            }
        }
    }
}

impl FromStr for NamePattern {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        match text.strip_suffix('*') {
            None => Ok(Self::One(text.parse()?)),
            Some(prefix) => {
                // Every name that it gives is one.
                format!("{prefix}{NUMBERS}").parse::<ClientId>()?;
                Ok(Self::Numbered {
                    prefix: prefix.to_owned(),
                })
            }
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => write!(f, "{one}"),
            Self::Numbered { prefix } => write!(f, "{prefix}*"),
        }
    }
}

impl TryFrom<String> for NamePattern {
    type Error = ProtocolError;

    fn try_from(text: String) -> Result<Self, ProtocolError> {
        text.parse()
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_gives_the_first_free_number() {
        let pattern: NamePattern = "camera-*".parse().unwrap();
        let free = |from| pattern.first_free(from, |name| name.as_str() < "camera-03").unwrap();
        assert_eq!(free(0), ("camera-03".parse().unwrap(), 3));
        assert_eq!(free(7), ("camera-07".parse().unwrap(), 7));
        assert!(pattern.allows(&"camera-front".parse().unwrap()));
        assert!(!pattern.allows(&"door-00".parse().unwrap()));
        assert_eq!(pattern.to_string(), "camera-*");
    }

    #[test]
    fn one_name_allows_no_other_and_bad_names_are_no_patterns() {
        let one: NamePattern = "anna".parse().unwrap();
        assert_eq!(one.first_free(0, |_| true).unwrap().0.as_str(), "anna");
        assert!(one.allows(&"anna".parse().unwrap()) && !one.allows(&"anna2".parse().unwrap()));
        for bad in ["", "*a", "a*b", "a**", "../*", "a b*", &format!("{}*", "x".repeat(64))] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad}");
        }
    }
}
