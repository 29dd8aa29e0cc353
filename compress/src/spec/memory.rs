//! What is carried from round to round, as asked.

use serde::de::MapAccess;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::choice::{self, Choice};
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
        choice::deserialize(deserializer)
    }
}

impl Choice for Memory {
    const FORMS: &'static str = r#""none", "error-feedback" or { error-feedback = { decay = .. } }"#;

    fn plain(name: &str) -> Option<Self> {
        match name {
            NONE => Some(Self::None),
            ERROR_FEEDBACK => Some(Self::default()),
            _ => None,
        }
    }

    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != ERROR_FEEDBACK {
            return Ok(None);
        }
        let ErrorFeedback { decay } = map.next_value()?;
        Ok(Some(Self::ErrorFeedback { decay }))
    }
}
