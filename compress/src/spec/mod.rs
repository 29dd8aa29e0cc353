//! The requested codec: the `[compression.uplink]` and `[compression.downlink]` tables of a run.

pub(crate) mod alternatives;
pub(crate) mod budget;
pub(crate) mod budget_bandit;
mod budget_table;
pub(crate) mod error_limit;
pub(crate) mod method;
pub(crate) mod preset;
pub(crate) mod weight;
pub(crate) mod when;

use serde::{Deserialize, Serialize};

use crate::code::method::CodeSpec;
use crate::error::Error;
use crate::layout::{Role, Tensor};
use crate::memory::Memory;
use crate::quantize::QuantizeSpec;
use crate::quantize::dead_zone::DeadZone;
use crate::reduce::ReduceSpec;
use crate::spec::budget::Budget;
use crate::spec::error_limit::ErrorLimit;
use crate::spec::method::{EXACT, Method, Rule, Small};
use crate::spec::preset::Preset;
use crate::spec::weight::Weight;

/// Codec of one direction of a run. Omitted keys have the values of [`Spec::exact`] if the key `default` is present,
/// else those of [`Spec::default`]; with the key `preset`, those of [`Spec::preset`]. Exception: a spec with a `default`, or
/// whose `rules` or `small` name a step or a density, has no default budget, since a budget would replace those.
///
/// ```
/// let spec: fl_compress::Spec = toml::from_str(r#"
///     # preset = "sparseloco"               # or another of configs/presets: sets the keys below, which then change what they name
///     memory  = "auto"                      # or "none", "error-feedback", "cafe", ["cafe", "error-feedback"], "ef21", "dgc", or one with numbers
///     budget  = "0.25 bits"                 # per value; "200KiB" per frame, "0.25 to 1 bits, error 0.8", or { by = "bandit", .. }
///     default = { quantize = "dead_zone", code = "context" }   # without a budget, also or = { .. }: a choice of codecs
///     small   = { below = 1024, use = { quantize = { uniform = 8 }, code = "context" } }
///     weight  = "fisher"                    # or a number: factor of a tensor's error in the budget
///     buffers = "rounded"                   # or "exact", the default without a budget: rules and budget do not apply to buffers
///     [[rules]]                             # the first rule that matches a tensor replaces the default
///     when = { name = "*.embedding" }       # also min_len, max_len, min_dims, max_dims
///     use  = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = "rans" }
///     [[rules]]                             # the first rule with a weight replaces that one
///     when   = { name = "head.*" }
///     weight = 4
/// "#)?;
/// assert_eq!(spec.rules.len(), 2);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Spec {
    /// The state that the encoder carries from round to round.
    pub memory: Memory,
    /// Size limit of a frame. It determines the step of each dead zone and the `k` of each top-k of whole tensors, and
    /// overrides their values in the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Factor of the errors of all tensors without a rule of their own, small tensors included, when the budget is allotted.
    #[serde(skip_serializing_if = "Weight::is_default")]
    pub weight: Weight,
    /// Codec of all other tensors.
    pub default: Method,
    /// Codec of the small tensors, which are encoded together as one tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small: Option<Small>,
    /// Exceptions. The first rule with a codec that matches a tensor sets its codec, the first with a weight its weight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Precision of buffers (running statistics), which are always sent whole. If omitted, rounded with a budget and exact without.
    pub buffers: BufferPrecision,
}

/// Precision in which buffers are sent. Counters are always sent exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferPrecision {
    /// Every value bit for bit.
    Exact,
    /// 14 significant bits of each value after the change, and more where the change is large, if the encoder is given the values
    /// before (see [`crate::EncodeOptions`]). What rounding loses is not added to the next update.
    Rounded,
}

/// A spec as written in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename = "Spec")]
struct Raw {
    preset: Option<Preset>,
    memory: Option<Memory>,
    budget: Option<Budget>,
    weight: Option<Weight>,
    default: Option<Method>,
    small: Option<Small>,
    #[serde(default)]
    rules: Vec<Rule>,
    buffers: Option<BufferPrecision>,
}

impl TryFrom<Raw> for Spec {
    type Error = Error;

    fn try_from(raw: Raw) -> Result<Self, Error> {
        let rest = match raw.preset {
            Some(preset) => Self::preset(preset)?,
            None if raw.default.is_some() => Self::exact(),
            None => Self::default(),
        };
        let mut named = raw.rules.iter().filter_map(|rule| rule.method.as_ref());
        let small = raw.small.as_ref().map(|small| &small.method);
        let has_own = named.any(Method::names_knob) || small.is_some_and(Method::names_knob);
        let budget = raw.budget.or(rest.budget.filter(|_| !has_own));
        let empty = raw
            .rules
            .iter()
            .find(|rule| rule.method.is_none() && rule.weight.is_none());
        if let Some(rule) = empty {
            let when = &rule.when;
            return Err(Error::Usage(format!(
                "a rule needs `use` (a codec), `weight`, or both: {when:?} has neither"
            )));
        }
        if budget.is_none() && (raw.weight.is_some() || raw.rules.iter().any(|rule| rule.weight.is_some())) {
            return Err(Error::Usage(
                "`weight` changes nothing without a budget; add one, such as budget = \"0.25 bits\"".to_owned(),
            ));
        }
        let usual = budget.map_or(BufferPrecision::Exact, |_| BufferPrecision::Rounded);
        let spec = Self {
            memory: raw.memory.unwrap_or(rest.memory),
            budget,
            weight: raw.weight.unwrap_or(rest.weight),
            default: raw.default.unwrap_or(rest.default),
            small: raw.small.or(rest.small),
            rules: raw.rules,
            buffers: raw.buffers.unwrap_or(usual),
        };
        spec.check_choices()?;
        Ok(spec)
    }
}

impl Spec {
    /// Every value bit for bit, without memory: equivalent to FedAvg in fp32.
    pub fn exact() -> Self {
        Self {
            memory: Memory::None,
            budget: None,
            weight: Weight::default(),
            default: Method::default(),
            small: None,
            rules: Vec::new(),
            buffers: BufferPrecision::Exact,
        }
    }

    /// The spec of a preset.
    ///
    /// # Errors
    /// `Usage` if the file of the preset is not a spec, which a test rules out.
    pub fn preset(preset: Preset) -> Result<Self, Error> {
        let refused = |why: String| Error::Usage(format!("preset {}: {why}", preset.name()));
        let raw: Raw = toml::from_str(preset.text()).map_err(|error| refused(error.to_string()))?;
        match raw.preset {
            Some(_) => Err(refused("a preset cannot be made of another".to_owned())),
            None => raw.try_into(),
        }
    }

    /// The codec of `tensor`. Of a trained tensor: that of small tensors, else of the first matching rule, else the
    /// default. Buffers and counters have codecs of their own, which keep every value.
    pub fn method(&self, tensor: &Tensor) -> &Method {
        if matches!(tensor.role, Role::Buffer | Role::Counter) {
            return &EXACT;
        }
        let small = self.small.as_ref().filter(|_| self.is_small(tensor));
        let mut rules = self.rules.iter().filter(|rule| rule.when.holds(tensor));
        small
            .map(|small| &small.method)
            .or_else(|| rules.find_map(|rule| rule.method.as_ref()))
            .unwrap_or(&self.default)
    }

    /// The weight of `tensor` in the budget, if it has a section of its own.
    pub(crate) fn weight_of(&self, tensor: &Tensor) -> Weight {
        let mut rules = self.rules.iter().filter(|rule| rule.when.holds(tensor));
        rules.find_map(|rule| rule.weight).unwrap_or(self.weight)
    }

    /// Whether a codec or a weight of the spec chooses by squared gradients (see [`crate::EncodeOptions`]).
    pub fn wants_squared_gradients(&self) -> bool {
        let mut weights = self.rules.iter().filter_map(|rule| rule.weight).chain([self.weight]);
        self.methods().any(Method::wants_squared_gradients) || weights.any(|weight| weight == Weight::Fisher)
    }

    /// Whether a codec of the spec chooses by the bandwidth of the client's link (see [`crate::EncodeOptions`]).
    pub fn wants_bandwidth(&self) -> bool {
        self.methods().any(Method::wants_bandwidth)
    }

    /// Every codec of trained tensors, those between which the encoder chooses included.
    pub fn methods(&self) -> impl Iterator<Item = &Method> {
        self.tops().flat_map(Method::each)
    }

    /// Every codec that is not after an `or`.
    fn tops(&self) -> impl Iterator<Item = &Method> {
        let small = self.small.iter().map(|small| &small.method);
        let rules = self.rules.iter().filter_map(|rule| rule.method.as_ref());
        std::iter::once(&self.default).chain(small).chain(rules)
    }

    pub(crate) fn is_small(&self, tensor: &Tensor) -> bool {
        let below = self.small.as_ref().map_or(0, |small| small.below);
        tensor.role == Role::Trained && tensor.len < below as usize
    }
}

impl Default for Spec {
    /// A quarter of a bit per value, up to one bit in small models, and more where a frame would otherwise have too large an
    /// error, most in the first rounds. Splits off low-rank components where that saves bytes; dead-zone quantization, context
    /// coding, small tensors merged.
    fn default() -> Self {
        let dead_zone = |reduce| Method {
            reduce,
            quantize: QuantizeSpec::DeadZone(DeadZone::default()),
            code: CodeSpec::Context,
            or: None,
        };
        Self {
            memory: Memory::Auto,
            budget: Some(Budget::Adaptive {
                least: 0.25,
                most: 1.0,
                error: Some(ErrorLimit::DEFAULT),
            }),
            weight: Weight::default(),
            default: dead_zone(ReduceSpec::Auto),
            small: Some(Small {
                below: 1024,
                method: dead_zone(ReduceSpec::Keep),
            }),
            rules: Vec::new(),
            buffers: BufferPrecision::Rounded,
        }
    }
}

#[cfg(test)]
mod tests;
