//! Second slot of a recipe, the quantizer: the precision of the sent values. A quantizer is one file and one line of
//! the table below.

pub(crate) mod bf16;
pub(crate) mod codebook;
pub(crate) mod dead_zone;
pub(crate) mod exact;
pub(crate) mod half;
pub(crate) mod known;
#[cfg(test)]
pub(crate) mod laws;
pub(crate) mod leveled;
pub(crate) mod method;
pub(crate) mod natural;
pub(crate) mod numbers;
pub(crate) mod recipe;
pub(crate) mod rotated;
pub(crate) mod sign;
pub(crate) mod ternary;
pub(crate) mod uniform;

use crate::forms::methods::methods;
use crate::quantize::dead_zone::DeadZone;
use crate::quantize::method::{Entry, Quantizer};

methods! {
    /// The requested quantizer.
    #[derive(Debug, Clone, Copy, PartialEq, Default)]
    QuantizeSpec: Quantizer, Entry;
    plain {
        /// binary32, bit for bit.
        #[default]
        Exact = exact,
        /// binary16 with one shared exponent per tensor: eleven significant bits.
        Half = half,
        /// bfloat16: eight significant bits, the whole range of `f32`.
        Bf16 = bf16,
        /// Signed powers of two with stochastic, unbiased rounding.
        Natural = natural,
    }
    numbers {
        /// Evenly spaced levels with one scale per block of values.
        Uniform = uniform,
        /// Multiples of a step with a wide zero: most values become zero.
        DeadZone = dead_zone,
        /// 1 to 4 bits per value after a random rotation.
        Rotated = rotated,
        /// Minus a scale, zero, or plus the scale.
        Ternary = ternary,
        /// One bit per value: the sign, with one or two magnitudes per tensor.
        Sign = sign,
        /// The nearest of a few levels that are fitted to the tensor.
        Codebook = codebook,
    }
}

impl QuantizeSpec {
    /// The same, but with its dead zone, if it is one, made so.
    pub(crate) fn with_zone(self, make: impl FnOnce(DeadZone) -> DeadZone) -> Self {
        match self {
            Self::DeadZone(zone) => Self::DeadZone(make(zone)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        quantize: QuantizeSpec,
    }

    fn parse(text: &str) -> Result<QuantizeSpec, String> {
        toml::from_str::<Holder>(&format!("quantize = {text}"))
            .map(|holder| holder.quantize)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_parses_and_round_trips() {
        let more = [
            "'dead_zone'",
            "{ uniform = { bits = 4, norm = 'l2', rounding = 'stochastic' } }",
            "{ dead_zone = {} }",
            "{ dead_zone = { step = 3, threshold = 0.5 } }",
            "{ dead_zone = { step = 2.5, rounding = 'stochastic' } }",
            "{ rotated = 1 }",
            "{ rotated = { bits = 2, scale = 'unbiased' } }",
            "{ ternary = { rounding = 'stochastic' } }",
            "{ sign = 'shared' }",
        ];
        for text in METHODS.iter().flat_map(|entry| entry.info.examples).chain(&more) {
            let quantize = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let written = toml::to_string(&Holder { quantize }).unwrap();
            assert_eq!(toml::from_str(&written), Ok(Holder { quantize }), "{text}: {written}");
        }
        assert_eq!(parse("{ dead_zone = {} }"), parse("'dead_zone'"));
        assert_eq!(parse("{ sign = 'shared' }"), parse("'sign'"));
        assert_eq!(parse("{ ternary = { rounding = 'nearest' } }"), parse("'ternary'"));
        assert_eq!(
            parse("{ uniform = { bits = 4, norm = 'max' } }"),
            parse("{ uniform = 4 }")
        );
    }

    #[test]
    fn refusals_say_what_was_expected() {
        for (text, expected) in [
            ("4", r#"expected "exact", "half", "bf16""#),
            (
                "'uniform'",
                "{ uniform, dead_zone, rotated, ternary, sign, codebook = .. }",
            ),
            ("{ half = 1 }", "table with `half`"),
            ("{ uniform = { bits = 4, norm = 'l3' } }", "`max` or `l2`"),
            ("{ uniform = { bits = 1, norm = 'l2' } }", "mean magnitude"),
            (
                "{ dead_zone = { step = 0 } }",
                "a step must be from 0.001 to 1000, not 0",
            ),
            ("{ dead_zone = { step = nan } }", "a step must be from 0.001 to 1000"),
            (
                "{ dead_zone = { threshold = 0.4 } }",
                "a threshold must be from 0.5 to 1, not 0.4",
            ),
            (
                "{ dead_zone = { threshold = 0.6, rounding = 'stochastic' } }",
                "a threshold requires nearest rounding",
            ),
            ("{ dead_zone = { stop = 1 } }", "unknown field `stop`"),
            ("{ dead_zone = 2 }", "{ step = .., threshold = .., rounding = .. }"),
            ("{ rotated = 5 }", "rotated takes 1 to 4 bits, not 5"),
            ("{ rotated = { bits = 1, scale = 'most' } }", "`least` or `unbiased`"),
            ("{ rotated = 'one' }", "a number of bits from 1 to 4"),
            ("{ ternary = { clip = 2.5 } }", "a clip requires stochastic rounding"),
            (
                "{ ternary = { rounding = 'stochastic', clip = 0 } }",
                "a clip must be positive and finite, not 0",
            ),
            ("{ sign = 'half' }", "`shared` or `split`"),
            ("{ codebook = 5 }", "codebook takes 1 to 4 bits, not 5"),
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}\n{refusal}");
        }
    }

    #[test]
    fn every_method_keeps_the_laws() {
        for text in METHODS.iter().flat_map(|entry| entry.info.examples) {
            let spec = parse(text).unwrap();
            laws::sizes(spec);
            laws::corruption(spec);
        }
    }
}
