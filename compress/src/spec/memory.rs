//! What is carried from round to round, as asked.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

const NONE: &str = "none";
const ERROR_FEEDBACK: &str = "error-feedback";

/// What the encoder remembers: `"none"`, `"error-feedback"` or `{ error-feedback = { decay = 0.95 } }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Memory {
    /// Nothing: what is not sent is lost.
    None,
    /// What was not sent, added to the next update.
    ErrorFeedback {
        /// Share of the residual that returns.
        decay: Decay,
    },
}

impl Default for Memory {
    fn default() -> Self {
        Self::ErrorFeedback {
            decay: Decay::default(),
        }
    }
}

/// Share of the residual that returns in the next update, in (0, 1]; by default all of it.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Decay(f64);

impl Decay {
    /// A decay.
    ///
    /// # Errors
    /// `Usage` if `share` is not in (0, 1].
    pub fn new(share: f64) -> Result<Self, Error> {
        if share > 0.0 && share <= 1.0 {
            return Ok(Self(share));
        }
        Err(Error::Usage(format!("a decay is above 0 and at most 1, not {share}")))
    }

    /// The share.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Decay {
    fn default() -> Self {
        Self(1.0)
    }
}

impl TryFrom<f64> for Decay {
    type Error = Error;

    fn try_from(share: f64) -> Result<Self, Error> {
        Self::new(share)
    }
}

impl From<Decay> for f64 {
    fn from(decay: Decay) -> Self {
        decay.0
    }
}

/// The table of `error-feedback`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorFeedback {
    #[serde(default)]
    decay: Decay,
}

impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::None => serializer.serialize_str(NONE),
            Self::ErrorFeedback { decay } if decay == Decay::default() => serializer.serialize_str(ERROR_FEEDBACK),
            Self::ErrorFeedback { decay } => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(ERROR_FEEDBACK, &ErrorFeedback { decay })?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Memory;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#""none", "error-feedback" or { error-feedback = { decay = .. } }"#)
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Memory, E> {
                match name {
                    NONE => Ok(Memory::None),
                    ERROR_FEEDBACK => Ok(Memory::default()),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Memory, A::Error> {
                let memory = match map.next_key::<String>()? {
                    Some(key) if key == ERROR_FEEDBACK => {
                        let ErrorFeedback { decay } = map.next_value()?;
                        Memory::ErrorFeedback { decay }
                    }
                    Some(key) => return Err(A::Error::unknown_field(&key, &[ERROR_FEEDBACK])),
                    None => return Err(A::Error::invalid_length(0, &self)),
                };
                match map.next_key::<String>()? {
                    Some(key) => Err(A::Error::unknown_field(&key, &[ERROR_FEEDBACK])),
                    None => Ok(memory),
                }
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}
