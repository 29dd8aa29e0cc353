//! Memory: the state that an encoder carries from one update to the next. A memory is one file, a variant of [`Memory`]
//! and a line of the table below.
//!
//! All are two-phase: encoding yields a pending state, and the acknowledgement commits it or rolls it back.

pub(crate) mod auto;
pub(crate) mod cafe;
pub(crate) mod cafe_error_feedback;
pub(crate) mod dgc;
pub(crate) mod ef21;
pub(crate) mod error_feedback;
pub(crate) mod method;
pub(crate) mod none;

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::forms::choice::{self, Choice};
use crate::memory::dgc::Dgc;
use crate::memory::error_feedback::Decay;
use crate::memory::method::{Encodes, Entry, MemoryInfo, State};

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
    /// CAFe, and the unsent residual of earlier differences is added to the next one.
    CafeErrorFeedback {
        /// Share of the residual that is added to the next difference.
        decay: Decay,
    },
    /// EF21: sends the difference from the sum of everything sent before. The receiver keeps the same sum.
    Ef21,
    /// Deep Gradient Compression: momentum, and the sum of unsent momenta.
    Dgc(Dgc),
}

/// Generates `METHODS` and the TOML forms from the table. Each line is `Variant = module`, for a memory with parameters
/// `Variant { field: name } = module`. The module defines `METHOD` and `state`; with parameters also their default, and
/// `Table`, their form in TOML.
macro_rules! memories {
    ($($variant:ident $({ $field:tt: $numbers:ident })? = $module:ident,)*) => {
        // Every memory, in the order of error texts.
        pub(crate) const METHODS: &[Entry] = &[$($module::METHOD,)*];

        impl Memory {
            /// The memory as users write it, and its properties.
            pub fn info(self) -> &'static MemoryInfo {
                match self {
                    $(Self::$variant { .. } => const { &$module::METHOD.info },)*
                }
            }

            /// The empty state for `len` values.
            pub(crate) fn state(self, len: usize) -> Box<dyn State> {
                match self {
                    $(Self::$variant { $($field: $numbers)? } => $module::state($($numbers,)? len),)*
                }
            }
        }

        impl Serialize for Memory {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match *self {
                    $($(Self::$variant { $field: $numbers } if $numbers != Default::default() => {
                        serializer.collect_map([(self.name(), $module::Table::from($numbers))])
                    })?)*
                    _ => serializer.serialize_str(self.name()),
                }
            }
        }

        impl Choice for Memory {
            fn forms() -> String {
                method::forms(METHODS)
            }

            fn plain(name: &str) -> Option<Self> {
                match name {
                    $(_ if name == $module::METHOD.info.name => {
                        Some(Self::$variant { $($field: Default::default())? })
                    })*
                    _ => None,
                }
            }

            fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
                match name {
                    $($(_ if name == $module::METHOD.info.name => {
                        let $numbers: $module::Table = map.next_value()?;
                        Ok(Some(Self::$variant { $field: $numbers.into() }))
                    })?)*
                    _ => Ok(None),
                }
            }

            fn together(parts: &[Self]) -> Option<Self> {
                match *parts {
                    [Self::Cafe, Self::ErrorFeedback { decay }] | [Self::ErrorFeedback { decay }, Self::Cafe] => Some(Self::CafeErrorFeedback { decay }),
                    _ => None,
                }
            }
        }
    };
}

memories! {
    Auto = auto,
    None = none,
    ErrorFeedback { decay: share } = error_feedback,
    Cafe = cafe,
    CafeErrorFeedback { decay: share } = cafe_error_feedback,
    Ef21 = ef21,
    Dgc { 0: numbers } = dgc,
}

impl Memory {
    /// Name in TOML.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Whether frames have the difference from the last model update.
    pub fn predicts(self) -> bool {
        self.info().encodes == Encodes::FromModelUpdate
    }

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

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Doc {
        memory: Memory,
    }

    #[test]
    fn every_example_round_trips_and_has_the_state_of_the_table() {
        let mut kinds = BTreeSet::new();
        for entry in METHODS {
            for text in entry.info.examples {
                let doc: Doc = toml::from_str(&format!("memory = {text}")).unwrap();
                assert_eq!(doc.memory.name(), entry.info.name);
                let state = doc.memory.state(3);
                assert_eq!(state.vectors().len(), state.entry().vectors, "{text}");
                let written = toml::to_string(&doc).unwrap();
                assert_eq!(toml::from_str(&written), Ok(doc), "{text}: {written}");
            }
            let name = entry.info.name;
            assert!(entry.kind.is_none_or(|kind| kinds.insert(kind)), "{name}");
        }
    }
}
