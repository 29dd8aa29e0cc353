//! The optimizer of a client's steps: `optimizer` of the `[train]` table.
//!
//! A name, `"adamw"`, or a table with the name and what differs from its defaults, `{ adamw = { beta2 = 0.95 } }`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::range::within;
use crate::error::ProtocolError;

/// Settings of Adam with decoupled weight decay (Loshchilov and Hutter 2019).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// Part of the mean gradient that is left after a step, 0 to below 1.
    pub beta1: f32,
    /// Part of the mean squared gradient that is left after a step, 0 to below 1.
    pub beta2: f32,
    /// Added to the root of the mean squared gradient, above 0 and at most 1.
    pub eps: f32,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
        }
    }
}

/// Settings of Muon (Jordan et al. 2024), with the scale of Liu et al. 2025 (arXiv 2502.16982).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Muon {
    /// Part of the mean gradient that is left after a step, 0 to below 1.
    pub momentum: f32,
    /// Whether the step looks ahead along the momentum (Nesterov).
    pub nesterov: bool,
    /// Of the tensors that are not hidden matrices.
    pub adamw: AdamW,
}

impl Default for Muon {
    fn default() -> Self {
        Self {
            momentum: 0.95,
            nesterov: true,
            adamw: AdamW::default(),
        }
    }
}

/// The optimizer of a client's steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerSpec {
    /// Stochastic gradient descent, with `momentum` of the `[train]` table.
    #[default]
    Sgd,
    /// Adam with decoupled weight decay.
    AdamW(AdamW),
    /// Orthogonalized momentum for hidden matrices, AdamW for the other tensors.
    Muon(Muon),
}

impl OptimizerSpec {
    /// Every optimizer at its defaults; the first is the default.
    pub const ALL: [fn() -> Self; 3] = [
        || Self::Sgd,
        || Self::AdamW(AdamW::default()),
        || Self::Muon(Muon::default()),
    ];

    /// Name in run.toml.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::AdamW(_) => "adamw",
            Self::Muon(_) => "muon",
        }
    }

    /// Learning rate of a run.toml that gives none.
    pub fn default_learning_rate(&self) -> f32 {
        match self {
            Self::Sgd => 0.05,
            Self::AdamW(_) | Self::Muon(_) => 0.001,
        }
    }

    /// The optimizer called `name`, at its defaults.
    fn named(name: &str) -> Option<Self> {
        Self::ALL
            .map(|make| make())
            .into_iter()
            .find(|spec| spec.name() == name)
    }

    /// # Errors
    /// `Invalid`, naming the key and its range.
    pub(super) fn check(&self) -> Result<(), ProtocolError> {
        match self {
            Self::Sgd => Ok(()),
            Self::AdamW(adamw) => {
                adamw.check(["optimizer.adamw.beta1", "optimizer.adamw.beta2", "optimizer.adamw.eps"])
            }
            Self::Muon(muon) => {
                part("optimizer.muon.momentum", muon.momentum)?;
                muon.adamw.check([
                    "optimizer.muon.adamw.beta1",
                    "optimizer.muon.adamw.beta2",
                    "optimizer.muon.adamw.eps",
                ])
            }
        }
    }
}

impl AdamW {
    fn check(&self, [beta1, beta2, eps]: [&'static str; 3]) -> Result<(), ProtocolError> {
        part(beta1, self.beta1)?;
        part(beta2, self.beta2)?;
        within(
            eps,
            self.eps,
            self.eps > 0.0 && self.eps <= 1.0,
            "above 0 and at most 1",
        )
    }
}

/// A part of a moment that is left after a step.
fn part(field: &'static str, value: f32) -> Result<(), ProtocolError> {
    within(field, value, (0.0..1.0).contains(&value), "0 to below 1")
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Table {
    Sgd(Empty),
    AdamW(AdamW),
    Muon(Muon),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

impl<'de> Deserialize<'de> for OptimizerSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrTable)
    }
}

struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = OptimizerSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`sgd`, `adamw`, `muon`, or a table such as { adamw = { beta2 = 0.95 } }")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<OptimizerSpec, E> {
        OptimizerSpec::named(name).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OptimizerSpec, A::Error> {
        Ok(match Table::deserialize(MapAccessDeserializer::new(map))? {
            Table::Sgd(Empty {}) => OptimizerSpec::Sgd,
            Table::AdamW(adamw) => OptimizerSpec::AdamW(adamw),
            Table::Muon(muon) => OptimizerSpec::Muon(muon),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<OptimizerSpec, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_name_is_the_table_without_settings() {
        for make in OptimizerSpec::ALL {
            let spec = make();
            let name = spec.name();
            assert_eq!(parse(&format!("\"{name}\"")), Ok(spec));
            assert_eq!(parse(&format!("{{\"{name}\":{{}}}}")), Ok(spec));
            // What is written is read again.
            assert_eq!(parse(&serde_json::to_string(&spec).unwrap()), Ok(spec));
            spec.check().unwrap();
        }
    }

    #[test]
    fn a_table_changes_what_it_names() {
        let OptimizerSpec::AdamW(adamw) = parse(r#"{"adamw":{"beta2":0.95}}"#).unwrap() else {
            panic!("adamw");
        };
        assert_eq!((adamw.beta1, adamw.beta2, adamw.eps), (0.9, 0.95, 1e-8));
        let OptimizerSpec::Muon(muon) = parse(r#"{"muon":{"nesterov":false,"adamw":{"eps":1e-6}}}"#).unwrap() else {
            panic!("muon");
        };
        assert_eq!((muon.momentum, muon.nesterov, muon.adamw.eps), (0.95, false, 1e-6));
    }

    #[test]
    fn unknown_names_and_keys_are_refused_with_the_known_ones() {
        for (text, named) in [
            ("\"adam\"", "`adamw`"),
            (r#"{"adam":{}}"#, "`adamw`"),
            (r#"{"adamw":{"beta3":1}}"#, "`beta2`"),
            (r#"{"sgd":{"momentum":0.9}}"#, "momentum"),
            ("3", "`muon`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
