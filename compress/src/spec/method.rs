//! The codec of one tensor, and which tensors have it.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::code::method::CodeSpec;
use crate::quantize::QuantizeSpec;
use crate::quantize::dead_zone::DeadZone;
use crate::reduce::ReduceSpec;
use crate::reduce::method::Sends;
use crate::spec::weight::Weight;
use crate::spec::when::When;

/// Codec of one tensor: a choice for each of the three slots; the default is `keep`, `exact`, `pack`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Method {
    /// Which values are sent.
    pub reduce: ReduceSpec,
    /// The precision of the sent values.
    pub quantize: QuantizeSpec,
    /// The lossless code.
    pub code: CodeSpec,
    /// Another codec: of both, and of those after its own `or`, each tensor of each frame is coded by the one that saves the most
    /// squared error per byte, measured on a sample; by the first of equals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub or: Option<Box<Method>>,
}

/// A codec as written in TOML.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    reduce: ReduceSpec,
    quantize: QuantizeSpec,
    code: CodeSpec,
    or: Option<Box<Method>>,
}

// A derived implementation would read an empty array as a table without keys.
impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyTable;

        impl<'de> Visitor<'de> for OnlyTable {
            type Value = Method;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of reduce, quantize and code")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Method, A::Error> {
                let Raw {
                    reduce,
                    quantize,
                    code,
                    or,
                } = Raw::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Method {
                    reduce,
                    quantize,
                    code,
                    or,
                })
            }
        }

        deserializer.deserialize_map(OnlyTable)
    }
}

impl Method {
    pub(crate) fn wants_squared_gradients(&self) -> bool {
        self.each().any(|codec| codec.reduce.method().wants_squared_gradients())
    }

    pub(crate) fn wants_bandwidth(&self) -> bool {
        self.each().any(|codec| codec.reduce.method().wants_bandwidth())
    }

    pub(crate) fn wants_residual(&self) -> bool {
        self.each().any(|codec| codec.reduce.method().wants_residual())
    }

    /// Whether the method names a step or a density, which a budget would replace, or is a choice.
    pub(crate) fn names_knob(&self) -> bool {
        if self.or.is_some() {
            return true;
        }
        let reduce = self.reduce.method();
        match (reduce.sends(), &self.quantize) {
            (Sends::All | Sends::Components, QuantizeSpec::DeadZone(zone)) => zone.step() != DeadZone::default().step(),
            _ => reduce.names_density(),
        }
    }
}

/// Codec of all small tensors, which are encoded as one tensor: a section per tensor would cost more than the values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of below and use")]
pub struct Small {
    /// Tensors with fewer values than this are small; no rule applies to them.
    pub below: u32,
    /// The codec.
    #[serde(rename = "use")]
    pub method: Method,
}

/// A codec or a weight for the tensors that satisfy a condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of when, use and weight")]
pub struct Rule {
    /// The condition.
    pub when: When,
    /// The codec.
    #[serde(rename = "use", default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The weight of the error in the budget. Tensors that [`Small`] merges have the weight of the spec instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
}

// Codec of buffers and counters.
pub(crate) static EXACT: Method = Method {
    reduce: ReduceSpec::Keep,
    quantize: QuantizeSpec::Exact,
    code: CodeSpec::Auto,
    or: None,
};
