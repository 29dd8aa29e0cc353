//! What is asked of the second slot, and its forms in TOML.

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};

use crate::forms::choice::{self, Choice};
use crate::quantize::dead_zone::DeadZone;
use crate::quantize::recipe::Quantize;
use crate::quantize::rotated::Rotated;
use crate::quantize::sign::Sign;
use crate::quantize::ternary::Ternary;
use crate::quantize::uniform::Uniform;

/// What was asked of the second slot.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantizeSpec {
    /// All 32 bits.
    #[default]
    Exact,
    /// 16 bits with eleven of precision, for one range a tensor.
    Half,
    /// 16 bits with eight of precision and the whole range.
    Bf16,
    /// Few bits, with a scale for each block of values.
    Uniform(Uniform),
    /// Multiples of a step, most values becoming zero.
    DeadZone(DeadZone),
    /// Powers of two, by chance and without bias.
    Natural,
    /// Few bits after a random rotation.
    Rotated(Rotated),
    /// Minus, zero or plus one magnitude.
    Ternary(Ternary),
    /// Minus or plus one magnitude.
    Sign(Sign),
}

impl QuantizeSpec {
    /// About how many bits one of the largest values takes when it is coded, scales included.
    pub(crate) fn bits(&self) -> f64 {
        match self {
            Self::Exact => 32.0,
            Self::Half | Self::Bf16 => 16.0,
            Self::Uniform(uniform) => f64::from(uniform.bits()) + 16.0 / f64::from(uniform.block()),
            Self::DeadZone(_) => 3.0,
            Self::Natural => 9.0,
            Self::Rotated(rotated) => f64::from(rotated.bits()),
            Self::Ternary(_) | Self::Sign(_) => 1.0,
        }
    }

    /// Most bytes of `len` values at their plain width, scales included. A dead zone has no width of its own.
    pub(crate) fn most_bytes(&self, len: usize) -> usize {
        let packed = |width: u32| (len * width as usize).div_ceil(8);
        match self {
            Self::Exact | Self::DeadZone(_) => len * 4,
            Self::Half => 1 + len * 2,
            Self::Bf16 => len * 2,
            Self::Uniform(uniform) => packed(uniform.bits()) + len.div_ceil(uniform.block() as usize) * 2,
            Self::Natural => 2 + packed(8) + packed(1),
            // A scale for each piece of 65536, and for each binary digit of the rest.
            Self::Rotated(rotated) => packed(rotated.bits()) + (len / 65_536 + 16) * 4,
            Self::Ternary(_) => 4 + packed(2),
            Self::Sign(_) => 8 + packed(1),
        }
    }

    pub(crate) fn recipe(&self) -> Quantize {
        match *self {
            Self::Exact => Quantize::Exact,
            Self::Half => Quantize::Half,
            Self::Bf16 => Quantize::Bf16,
            Self::Uniform(uniform) => Quantize::Uniform {
                bits: uniform.bits(),
                block: uniform.block(),
            },
            Self::DeadZone(_) => Quantize::DeadZone,
            Self::Natural => Quantize::Natural,
            Self::Rotated(rotated) => Quantize::Rotated { bits: rotated.bits() },
            Self::Ternary(_) => Quantize::Ternary,
            Self::Sign(sign) => Quantize::Sign {
                split: sign == Sign::Split,
            },
        }
    }
}

impl<'de> Deserialize<'de> for QuantizeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice::deserialize(deserializer)
    }
}

impl Choice for QuantizeSpec {
    const FORMS: &'static str = concat!(
        r#""exact", "half", "bf16", "dead_zone", "natural", "ternary", "sign", "#,
        r#"{ uniform = bits }, { rotated = bits }, or one of dead_zone, ternary and sign with a table"#
    );

    fn plain(name: &str) -> Option<Self> {
        Some(match name {
            "exact" => Self::Exact,
            "half" => Self::Half,
            "bf16" => Self::Bf16,
            "dead_zone" => Self::DeadZone(DeadZone::default()),
            "natural" => Self::Natural,
            "ternary" => Self::Ternary(Ternary::default()),
            "sign" => Self::Sign(Sign::default()),
            _ => return None,
        })
    }

    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(Some(match name {
            "uniform" => Self::Uniform(map.next_value()?),
            "dead_zone" => Self::DeadZone(map.next_value()?),
            "rotated" => Self::Rotated(map.next_value()?),
            "ternary" => Self::Ternary(map.next_value()?),
            "sign" => Self::Sign(map.next_value()?),
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
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
        for text in [
            "'exact'",
            "'half'",
            "'bf16'",
            "'dead_zone'",
            "'natural'",
            "'ternary'",
            "'sign'",
            "{ uniform = 4 }",
            "{ uniform = { bits = 4, norm = 'l2', rounding = 'stochastic' } }",
            "{ dead_zone = {} }",
            "{ dead_zone = { step = 3, threshold = 0.5 } }",
            "{ dead_zone = { step = 2.5, rounding = 'stochastic' } }",
            "{ rotated = 1 }",
            "{ rotated = { bits = 2, scale = 'unbiased' } }",
            "{ ternary = { rounding = 'stochastic' } }",
            "{ ternary = { rounding = 'stochastic', clip = 2.5 } }",
            "{ sign = 'split' }",
            "{ sign = 'shared' }",
        ] {
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
            ("'uniform'", "{ uniform = bits }"),
            ("{ half = 1 }", "table with `half`"),
            ("{ uniform = { bits = 4, norm = 'l3' } }", "`max` or `l2`"),
            ("{ uniform = { bits = 1, norm = 'l2' } }", "mean magnitude"),
            ("{ dead_zone = { step = 0 } }", "a step is from 0.001 to 1000, not 0"),
            ("{ dead_zone = { step = nan } }", "a step is from 0.001 to 1000"),
            (
                "{ dead_zone = { threshold = 0.4 } }",
                "a threshold is from 0.5 to 1, not 0.4",
            ),
            (
                "{ dead_zone = { threshold = 0.6, rounding = 'stochastic' } }",
                "a threshold goes with nearest rounding",
            ),
            ("{ dead_zone = { stop = 1 } }", "unknown field `stop`"),
            ("{ dead_zone = 2 }", "{ step = .., threshold = .., rounding = .. }"),
            ("{ rotated = 5 }", "rotated takes 1 to 4 bits, not 5"),
            ("{ rotated = { bits = 1, scale = 'most' } }", "`least` or `unbiased`"),
            ("{ rotated = 'one' }", "a number of bits from 1 to 4"),
            ("{ ternary = { clip = 2.5 } }", "a clip goes with stochastic rounding"),
            (
                "{ ternary = { rounding = 'stochastic', clip = 0 } }",
                "a clip is above 0 and finite, not 0",
            ),
            ("{ sign = 'half' }", "`shared` or `split`"),
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}\n{refusal}");
        }
    }
}
