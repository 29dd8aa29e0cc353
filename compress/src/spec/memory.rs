//! The requested memory: the state that an encoder carries from round to round.

use serde::de::MapAccess;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::forms::choice::{self, Choice};

const FORMS: [(&str, Memory); 6] = [
    ("none", Memory::None),
    ("auto", Memory::Auto),
    (ERROR_FEEDBACK, Memory::ErrorFeedback { decay: Decay(1.0) }),
    ("cafe", Memory::Cafe),
    ("ef21", Memory::Ef21),
    (
        DGC,
        Memory::Dgc(Dgc {
            momentum: 0.9,
            clip: None,
        }),
    ),
];
const ERROR_FEEDBACK: &str = "error-feedback";
const DGC: &str = "dgc";

/// The state that an encoder carries from one update to the next, or the reference that it subtracts.
/// `docs/reference/compressors.md` has the equations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Memory {
    /// No memory: values that are not sent are lost.
    None,
    /// [`Memory::ErrorFeedback`] if every client takes part in every round, else [`Memory::Cafe`]. An encoder without
    /// that information uses error feedback.
    #[default]
    Auto,
    /// Error feedback (EF14): the unsent residual is added to the next update.
    ErrorFeedback {
        /// Share of the residual that is added to the next update.
        decay: Decay,
    },
    /// CAFe: sends the difference from the last model update, which client and server both have. Carries no state.
    Cafe,
    /// EF21: sends the difference from the sum of everything sent before. The receiver keeps the same sum.
    Ef21,
    /// Deep Gradient Compression: momentum, and the sum of unsent momenta.
    Dgc(Dgc),
}

/// Parameters of Deep Gradient Compression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawDgc")]
pub struct Dgc {
    /// Momentum factor, in [0, 1).
    momentum: f64,
    /// Limit of the Euclidean norm of an update; a longer update is scaled down to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    clip: Option<f64>,
}

impl Dgc {
    /// Momentum factor.
    pub fn momentum(&self) -> f64 {
        self.momentum
    }

    /// Limit of the Euclidean norm of an update.
    pub fn clip(&self) -> Option<f64> {
        self.clip
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDgc {
    #[serde(default = "nine_tenths")]
    momentum: f64,
    clip: Option<f64>,
}

fn nine_tenths() -> f64 {
    0.9
}

impl TryFrom<RawDgc> for Dgc {
    type Error = Error;

    fn try_from(RawDgc { momentum, clip }: RawDgc) -> Result<Self, Error> {
        if !(0.0..1.0).contains(&momentum) {
            return Err(Error::Usage(format!(
                "a momentum must be at least 0 and below 1, not {momentum}"
            )));
        }
        if let Some(clip) = clip.filter(|&clip| !(clip > 0.0 && clip.is_finite())) {
            return Err(Error::Usage(format!(
                "the norm `clip` must be positive and finite, not {clip}"
            )));
        }
        Ok(Self { momentum, clip })
    }
}

impl Memory {
    /// Resolves [`Memory::Auto`]; returns any other memory unchanged.
    pub fn resolved(self, everyone_takes_part: bool) -> Self {
        match self {
            Self::Auto if everyone_takes_part => Self::ErrorFeedback {
                decay: Decay::default(),
            },
            Self::Auto => Self::Cafe,
            _ => self,
        }
    }
}

/// Share of the residual that is added to the next update, in (0, 1]. Default: 1.
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
        Err(Error::Usage(format!(
            "a decay must be above 0 and at most 1, not {share}"
        )))
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

/// The TOML table of `error-feedback`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorFeedback {
    #[serde(default)]
    decay: Decay,
}

impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some((name, _)) = FORMS.iter().find(|(_, memory)| memory == self) {
            return serializer.serialize_str(name);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        match *self {
            Self::ErrorFeedback { decay } => map.serialize_entry(ERROR_FEEDBACK, &ErrorFeedback { decay })?,
            Self::Dgc(dgc) => map.serialize_entry(DGC, &dgc)?,
            Self::None | Self::Auto | Self::Cafe | Self::Ef21 => {}
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice::deserialize(deserializer)
    }
}

impl Choice for Memory {
    fn forms() -> String {
        r#""auto", "none", "error-feedback", "cafe", "ef21", "dgc", { error-feedback = { decay = .. } } or { dgc = { momentum = .., clip = .. } }"#.to_owned()
    }

    fn plain(name: &str) -> Option<Self> {
        FORMS.iter().find(|(form, _)| *form == name).map(|(_, memory)| *memory)
    }

    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(match name {
            ERROR_FEEDBACK => {
                let ErrorFeedback { decay } = map.next_value()?;
                Some(Self::ErrorFeedback { decay })
            }
            DGC => Some(Self::Dgc(map.next_value()?)),
            _ => None,
        })
    }
}
