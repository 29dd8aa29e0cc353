//! The requested codec: the `[compression.uplink]` and `[compression.downlink]` tables of a run.

pub(crate) mod alternatives;
pub(crate) mod budget;
mod budget_table;
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
use crate::reduce::method::Sends;
use crate::spec::budget::Budget;
use crate::spec::preset::Preset;
use crate::spec::weight::Weight;
use crate::spec::when::When;

/// Codec of one direction of a run. Omitted keys have the values of [`Spec::exact`] if the key `default` is present,
/// else those of [`Spec::default`]; with the key `preset`, those of [`Spec::preset`]. Exception: a spec with a `default`, or
/// whose `rules` or `small` name a step or a density, has no default budget, since a budget would replace those.
///
/// ```
/// let spec: fl_compress::Spec = toml::from_str(r#"
///     # preset = "sparseloco"               # or another of configs/presets: sets the keys below, which then change what they name
///     memory  = "auto"                      # or "none", "error-feedback", "cafe", ["cafe", "error-feedback"], "ef21", "dgc", or one with numbers
///     budget  = "0.25 bits"                 # per value; "200KiB" per frame, or "0.25 to 1 bits, error 0.7"
///     default = { quantize = "dead_zone", code = "context" }   # without a budget, also or = { .. }: a choice of codecs
///     small   = { below = 1024, use = { quantize = { uniform = 8 }, code = "context" } }
///     weight  = "fisher"                    # or a number: factor of a tensor's error in the budget
///     buffers = "exact"                     # or "half": precision of buffers; rules and budget do not apply to them
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
    /// Precision of buffers (running statistics), which are always sent whole.
    #[serde(skip_serializing_if = "BufferPrecision::is_default")]
    pub buffers: BufferPrecision,
}

/// Precision in which buffers are sent. Counters are always sent exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferPrecision {
    /// Every value bit for bit.
    #[default]
    Exact,
    /// Half precision (11 significant bits), scaled to the largest value of all buffers. What rounding loses is not
    /// added to the next update.
    Half,
}

impl BufferPrecision {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
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
    #[serde(default)]
    buffers: BufferPrecision,
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
        let spec = Self {
            memory: raw.memory.unwrap_or(rest.memory),
            budget,
            weight: raw.weight.unwrap_or(rest.weight),
            default: raw.default.unwrap_or(rest.default),
            small: raw.small.or(rest.small),
            rules: raw.rules,
            buffers: raw.buffers,
        };
        spec.check_choices()?;
        Ok(spec)
    }
}

/// Codec of one tensor: a choice for each of the three slots; the default is `keep`, `exact`, `pack`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table of reduce, quantize and code")]
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

impl Method {
    pub(crate) fn wants_squared_gradients(&self) -> bool {
        self.each().any(|codec| codec.reduce.method().wants_squared_gradients())
    }

    pub(crate) fn wants_residual(&self) -> bool {
        self.each().any(|codec| codec.reduce.method().wants_residual())
    }

    /// Whether the method names a step or a density, which a budget would replace, or is a choice.
    fn names_knob(&self) -> bool {
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
#[serde(deny_unknown_fields)]
pub struct Small {
    /// Tensors with fewer values than this are small; no rule applies to them.
    pub below: u32,
    /// The codec.
    #[serde(rename = "use")]
    pub method: Method,
}

/// A codec or a weight for the tensors that satisfy a condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
            buffers: BufferPrecision::default(),
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
        match (tensor.role, self.buffers) {
            (Role::Buffer, BufferPrecision::Half) => return &HALF,
            (Role::Buffer | Role::Counter, _) => return &EXACT,
            (Role::Trained | Role::Local | Role::Frozen, _) => {}
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

    /// Whether a codec or a weight of the spec chooses by squared gradients (see [`crate::Given`]).
    pub fn wants_squared_gradients(&self) -> bool {
        let mut weights = self.rules.iter().filter_map(|rule| rule.weight).chain([self.weight]);
        self.methods().any(Method::wants_squared_gradients) || weights.any(|weight| weight == Weight::Fisher)
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

/// Codec of counters, and of buffers in full precision.
static EXACT: Method = whole(QuantizeSpec::Exact);
/// Codec of buffers in half precision.
static HALF: Method = whole(QuantizeSpec::Half);

const fn whole(quantize: QuantizeSpec) -> Method {
    Method {
        reduce: ReduceSpec::Keep,
        quantize,
        code: CodeSpec::Auto,
        or: None,
    }
}

impl Default for Spec {
    /// A quarter of a bit per value, up to one bit in small models, and more where a section would otherwise lose more
    /// than half of its energy. Splits off low-rank components where that saves bytes; dead-zone quantization, context
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
                error: 0.7,
            }),
            weight: Weight::default(),
            default: dead_zone(ReduceSpec::Auto),
            small: Some(Small {
                below: 1024,
                method: dead_zone(ReduceSpec::Keep),
            }),
            rules: Vec::new(),
            buffers: BufferPrecision::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    fn refusal(text: &str) -> String {
        toml::from_str::<Spec>(text).unwrap_err().to_string()
    }

    #[test]
    fn every_form_parses_and_round_trips() {
        for text in [
            "",
            "memory = 'none'",
            "memory = 'auto'",
            "memory = 'error-feedback'",
            "memory = { error-feedback = { decay = 0.95 } }",
            "memory = 'cafe'",
            "memory = ['cafe', 'error-feedback']",
            "memory = [{ error-feedback = { decay = 0.95 } }, 'cafe']",
            "memory = 'ef21'",
            "memory = 'dgc'",
            "memory = { dgc = { momentum = 0.5, clip = 3.0 } }",
            "budget = '200KiB'",
            "budget = '0.1 bits'",
            "budget = '0.1 bits, error 0.5'",
            "budget = '0.1 to 2 bits, error 0.5'",
            "budget = '0.1 to 2 bits'",
            "weight = 'fisher'",
            "weight = 4\nrules = [{ when = { name = '*.bias' }, weight = 'fisher' }, { when = {}, use = {}, weight = 0.5 }]",
            "default = {}",
            "default = { reduce = { top_k = 1 }, quantize = 'half', code = 'rans' }",
            "default = { reduce = { top_k = { density = 0.1, chunk = 4096 } }, code = 'auto' }",
            "default = { reduce = { random_k = 0.1 }, code = 'rice' }",
            "default = { reduce = { threshold = 0.001 }, code = 'huffman' }",
            "default = { reduce = { threshold = { sampled = 0.01 } } }",
            "default = { reduce = { low_rank = 4 }, code = 'context' }",
            "default = { reduce = { low_rank = { rank = 4, remainder = 0.001 } } }",
            "default = { reduce = { count_sketch = 0.1 } }",
            "default = { reduce = { count_sketch = { density = 0.1, rows = 3, top = 0.5 } } }",
            "default = { reduce = { projection = 0.1 } }",
            "default = { quantize = { uniform = 8 } }",
            "default = { quantize = { uniform = { bits = 1, rounding = 'stochastic', block = 64 } } }",
            "small = { below = 1024, use = { quantize = 'half' } }",
            "buffers = 'half'",
            "rules = [{ when = { min_len = 2, max_len = 9, min_dims = 1, max_dims = 2, name = '*.bias' }, use = {} }]",
        ] {
            let spec: Spec = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                toml::from_str::<Spec>(&toml::to_string(&spec).unwrap()),
                Ok(spec),
                "{text}"
            );
        }
        let spec = Spec::default();
        assert_eq!(toml::from_str::<Spec>(&toml::to_string(&spec).unwrap()), Ok(spec));
        assert_eq!(toml::from_str::<Spec>(""), Ok(Spec::default()));
        assert_eq!(toml::from_str::<Spec>("default = {}"), Ok(Spec::exact()));
        let tenth: Spec = toml::from_str("budget = '0.1 bits'").unwrap();
        assert_eq!(
            (tenth.budget, tenth.default),
            (Some(Budget::Bits(0.1)), Spec::default().default)
        );
        let faded: Spec = toml::from_str("memory = { error-feedback = { decay = 0.95 } }").unwrap();
        assert!(
            toml::to_string(&faded).unwrap().contains("decay = 0.95\n"),
            "the shortest decimal form"
        );
    }

    #[test]
    fn a_preset_sets_what_no_other_key_names() {
        for &preset in Preset::ALL {
            let name = preset.name();
            let text = format!("preset = '{name}'");
            assert_eq!(toml::from_str::<Spec>(&text), Ok(Spec::preset(preset).unwrap()));
            let written = toml::to_string(&Spec::preset(preset).unwrap()).unwrap();
            assert_eq!(
                toml::from_str::<Spec>(&written),
                Ok(Spec::preset(preset).unwrap()),
                "{written}"
            );
        }
        let spec: Spec = toml::from_str("preset = 'sparseloco'\nmemory = 'cafe'").unwrap();
        assert_eq!((spec.memory, spec.budget), (Memory::Cafe, None));
        assert_eq!(spec.default, Spec::preset(Preset::Sparseloco).unwrap().default);
        assert!(refusal("preset = 'loco'").contains("`sparseloco`"));
    }

    #[test]
    fn refusals_say_what_was_expected() {
        for (text, expected) in [
            ("defualt = {}", "unknown field `defualt`"),
            (
                "default = { reduce = { top_k = 0 } }",
                "a density must be above 0 and at most 1, not 0",
            ),
            (
                "default = { reduce = { top_k = 1.5 } }",
                "a density must be above 0 and at most 1, not 1.5",
            ),
            ("default = 3", "expected a table of reduce, quantize and code"),
            (
                "default = { reduce = 'topk' }",
                r#"string "topk", expected "keep", "auto" or one of { top_k,"#,
            ),
            (
                "default = { reduce = 'top_k' }",
                r#"string "top_k", expected "keep", "auto" or one of { top_k,"#,
            ),
            (
                "default = { reduce = 3 }",
                r#"integer `3`, expected "keep", "auto" or one of { top_k,"#,
            ),
            (
                "default = { reduce = { keep = 1 } }",
                r#"table with `keep`, expected "keep", "auto" or one of { top_k,"#,
            ),
            (
                "default = { reduce = { top_k = 1, k = 2 } }",
                "table with `k`, expected",
            ),
            ("default = { reduce = {} }", r#"map, expected "keep", "auto" or"#),
            ("default = { quantize = 4 }", r#"expected "exact", "half""#),
            (
                "default = { quantize = { uniform = 9 } }",
                "uniform takes 1 to 8 bits, not 9",
            ),
            ("default = { quantize = { uniform = -1 } }", "uniform takes 1 to 8 bits"),
            (
                "default = { quantize = { uniform = 'four' } }",
                "a number of bits from 1 to 8, or { bits",
            ),
            (
                "default = { quantize = { uniform = { bits = 4, block = 100 } } }",
                "a power of two from 16 to 65536",
            ),
            (
                "default = { quantize = { uniform = { bits = 4, size = 1 } } }",
                "unknown field `size`",
            ),
            ("default = { code = 'zip' }", "expected one of `pack`, `rans`, `rice`"),
            (
                "memory = 'momentum'",
                r#"expected "auto", "none", "error-feedback", "cafe", "cafe+error-feedback", "ef21", "dgc", { error-feedback = { decay = .. } }, { cafe+error-feedback = { decay = .. } } or { dgc = { momentum = .., clip = .. } }"#,
            ),
            (
                "memory = { error-feedback = { decay = 0 } }",
                "a decay must be above 0 and at most 1",
            ),
            (
                "memory = ['cafe', 'dgc']",
                r#"invalid value: sequence, expected "auto", "none","#,
            ),
            ("memory = ['error-feedback']", "invalid value: sequence, expected"),
            ("memory = []", "invalid value: sequence, expected"),
            (
                "memory = ['cafe', 'error-feeding']",
                r#"string "error-feeding", expected "auto""#,
            ),
            ("memory = { error-feedback = { decoy = 1 } }", "unknown field `decoy`"),
            (
                "rules = [{ when = { max_size = 3 }, use = {} }]",
                "unknown field `max_size`",
            ),
            ("rules = [{ use = {} }]", "missing field `when`"),
            (
                "rules = [{ when = { name = 'a' } }]",
                "a rule needs `use` (a codec), `weight`, or both",
            ),
            ("weight = 'entropy'", r#"a `weight` from 1e-6 to 1e6, or "fisher""#),
            ("weight = 0", "a `weight` must be from 1e-6 to 1e6, not 0"),
            ("weight = nan", "a `weight` must be from 1e-6 to 1e6, not NaN"),
            (
                "rules = [{ when = {}, weight = -2.5 }]",
                "a `weight` must be from 1e-6 to 1e6, not -2.5",
            ),
            (
                "default = {}\nrules = [{ when = {}, weight = 2 }]",
                "`weight` changes nothing without a budget",
            ),
            (
                "preset = 'exact'\nweight = 2",
                "`weight` changes nothing without a budget",
            ),
            (
                "memory = { dgc = { momentum = 1.0 } }",
                "a momentum must be at least 0 and below 1",
            ),
            (
                "memory = { dgc = { clip = 0.0 } }",
                "the norm `clip` must be positive and finite",
            ),
            ("budget = '200 apples'", r#"not "200 apples""#),
            ("budget = 200", "expected a budget such as"),
            (
                "default = { reduce = { threshold = 0 } }",
                "a threshold is a magnitude above 0",
            ),
            ("default = { reduce = { low_rank = 0 } }", "a rank is 1 to 1024, not 0"),
            (
                "default = { reduce = { low_rank = 1.5 } }",
                "a rank is 1 to 1024, not 1.5",
            ),
            (
                "default = { reduce = { count_sketch = { density = 0.1, rows = 4 } } }",
                "an odd number of rows",
            ),
            ("small = { use = {} }", "missing field `below`"),
            ("buffers = 'sparse'", "expected `exact` or `half`"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(expected), "{text}\n{refusal}");
        }
    }

    #[test]
    fn a_spec_that_names_steps_has_no_budget_unless_it_says_so() {
        let budget = |text: &str| toml::from_str::<Spec>(text).unwrap().budget;
        let assumed = Spec::default().budget;
        for text in [
            "default = { quantize = { dead_zone = { step = 0.5 } } }",
            "rules = [{ when = {}, use = { quantize = { dead_zone = { step = 0.5 } } } }]",
            "rules = [{ when = { name = 'a' }, use = {} }, { when = {}, use = { reduce = { top_k = 0.01 } } }]",
            "small = { below = 9, use = { quantize = { dead_zone = { step = 0.5 } } } }",
        ] {
            assert_eq!(budget(text), None, "{text}");
            assert_eq!(
                budget(&format!("budget = '1 bits'\n{text}")),
                Some(Budget::Bits(1.0)),
                "{text}"
            );
        }
        for text in [
            "memory = 'none'",
            "rules = [{ when = { name = '*.running_*' }, use = {} }]",
            "rules = [{ when = {}, use = { quantize = 'dead_zone' } }]",
            "small = { below = 1024, use = { quantize = { uniform = 8 } } }",
        ] {
            assert_eq!(budget(text), assumed, "{text}");
        }
    }

    #[test]
    fn no_rule_applies_to_buffers_and_counters() {
        let layout = crate::layout::tests::batch_norm();
        for text in [
            "",
            "default = { reduce = { top_k = 0.1 } }",
            "default = {}\nrules = [{ when = {}, use = { quantize = 'sign' } }]",
            "small = { below = 1024, use = { quantize = { uniform = 2 } } }",
        ] {
            for (precision, quantize) in [("exact", QuantizeSpec::Exact), ("half", QuantizeSpec::Half)] {
                let spec: Spec = toml::from_str(&format!("buffers = '{precision}'\n{text}")).unwrap();
                for tensor in layout.tensors() {
                    let method = spec.method(tensor);
                    let expected = match tensor.role {
                        Role::Buffer => quantize,
                        Role::Counter => QuantizeSpec::Exact,
                        _ => continue,
                    };
                    assert_eq!(
                        (&method.reduce, method.quantize),
                        (&ReduceSpec::Keep, expected),
                        "{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_first_rule_that_holds_wins() {
        let spec: Spec = toml::from_str(
            "default = { code = 'rans' }
             rules = [
                 { when = { name = '*.bias' }, use = { quantize = 'half' } },
                 { when = { max_len = 10 }, use = { reduce = { top_k = 0.5 } } },
             ]",
        )
        .unwrap();
        let layout = Layout::new([("a.bias", vec![4]), ("b", vec![2, 5]), ("c", vec![11])]).unwrap();
        let methods: Vec<&Method> = layout.tensors().iter().map(|tensor| spec.method(tensor)).collect();
        assert_eq!(
            methods,
            [
                spec.rules[0].method.as_ref().unwrap(),
                spec.rules[1].method.as_ref().unwrap(),
                &spec.default
            ]
        );
        let spec = Spec {
            small: Spec::default().small,
            ..spec
        };
        assert_eq!(
            spec.method(&layout.tensors()[0]).quantize,
            Spec::default().small.unwrap().method.quantize
        );
    }
}
