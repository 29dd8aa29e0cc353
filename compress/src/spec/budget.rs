//! The requested size of a frame.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::Error;
use crate::size::{self, SIZES, UNITS};
use crate::spec::budget_bandit::{BY, BudgetBandit, MOST_BITS};
use crate::spec::error_limit::ErrorLimit;

/// Size limit of a frame: `"200KiB"`, `"1500 B"`, or `"0.25 bits"` per trained value of the model. With `"0.25 to 1 bits"`,
/// frames of small models have more bits per value, as fewer would save almost nothing. With `", error 0.8"` after the
/// bits, a frame exceeds the limit if it would otherwise have a relative error above 0.8; that limit may change with the rounds
/// ([`ErrorLimit`]).
///
/// In TOML also `{ link = "1Mbit/s", deadline = "20s" }`, which is read as bytes: 95 % of what the link carries in the deadline
/// less `train`, half the deadline by default; `{ run = "2MiB" }`; and `{ by = "bandit", least = "0.1 bits", most = "1 bits" }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "String")]
pub enum Budget {
    /// Total bytes, those of buffers and counters included.
    Bytes(u64),
    /// Bytes of all frames of an encoder in a run. A server makes a budget for each round of it; an encoder refuses it.
    Run(u64),
    /// Bits per trained value, but at least the size of the headers and of the tensors whose codec has no step or
    /// density. Buffers and counters come on top, here and in `Adaptive`.
    Bits(f64),
    /// Bits per value that depend on the size of the model and on the error.
    Adaptive {
        /// Bits per value of a large model.
        least: f64,
        /// Bits per value of a small model. Models in between have a frame of [`Budget::FRAME`] bytes.
        most: f64,
        /// Limit of the relative error, if there is one. A frame takes the additional bytes that keep the relative error of
        /// all sections with a step or a density together within this limit, by an estimate before coding: `|v - v'| <=
        /// error |v|`, where `v` is their input (with residual, without predictor, each value times the root of its tensor's
        /// weight) and `v'` their decoded values. A section is a tensor, or all small tensors. One that sends nothing has a
        /// relative error of 1; no section exceeds 0.9, unless the limit does.
        error: Option<ErrorLimit>,
    },
    /// Bits per trained value that an agent chooses for each frame, by what earlier frames kept for their bytes.
    Bandit(BudgetBandit),
}

// After the bytes of a budget for a run.
const A_RUN: &str = " a run";

impl Budget {
    /// An adaptive budget uses up to this many bytes even if `least` bits per value would be fewer: the messages,
    /// records and headers around a frame already take about a quarter of it.
    pub const FRAME: u64 = 4096;

    /// Smallest size limit of an adaptive budget. A model of a few values needs more than `most` bits per value
    /// ([`Self::Adaptive`]), and such a frame is small compared to the messages around it.
    pub const LEAST: u64 = 256;

    /// Size limit in bytes of a frame of `len` values, if no section needs more to meet the error limit; the largest that an
    /// agent may choose.
    pub fn bytes(self, len: usize) -> u64 {
        let bytes = |bits: f64| (bits * len as f64 / 8.0) as u64;
        match self {
            Self::Bytes(bytes) | Self::Run(bytes) => bytes,
            Self::Bits(bits) => bytes(bits),
            Self::Bandit(bandit) => bytes(bandit.most),
            Self::Adaptive { least, most, .. } => Self::FRAME.min(bytes(most)).max(bytes(least)).max(Self::LEAST),
        }
    }

    /// Target size in bytes of a frame of `len` trained values and of `aside` bytes of buffers and counters. Those count
    /// toward a limit in bytes, and come on top of one in bits.
    pub(crate) fn frame_bytes(self, len: usize, aside: u64) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Run(bytes) => bytes,
            Self::Bits(_) | Self::Adaptive { .. } | Self::Bandit(_) => self.bytes(len).saturating_add(aside),
        }
    }

    pub(crate) fn smallest(self) -> Self {
        match self {
            Self::Bandit(bandit) => Self::Bits(bandit.least),
            budget => budget,
        }
    }

    /// Limit of the relative error of a frame, if the budget has one.
    pub fn error(self) -> Option<ErrorLimit> {
        match self {
            Self::Adaptive { error, .. } => error,
            Self::Bytes(_) | Self::Run(_) | Self::Bits(_) | Self::Bandit(_) => None,
        }
    }
}

impl FromStr for Budget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refusal = || {
            Error::Usage(format!(
                r#"a `budget` must be bytes of a frame {SIZES}, such as "200KiB"; or bits per value above 0 and at most {MOST_BITS}, such as "0.25 bits", "0.25 to 1 bits, error 0.8" or "0.25 to 1 bits, error 0.25 to 0.8 by round 6" with errors above 0 and below 1; not "{text}""#
            ))
        };
        if text.contains(BY) {
            return text.parse().map(Self::Bandit);
        }
        if let Some(total) = text.strip_suffix(A_RUN) {
            return match total.parse()? {
                Self::Bytes(total) => Ok(Self::Run(total)),
                _ => Err(refusal()),
            };
        }
        let (bits, error) = match text.split_once(',') {
            None => (text, None),
            Some((bits, error)) => {
                let error = error.trim().strip_prefix("error ").ok_or_else(refusal)?;
                (bits, Some(error.trim().parse().map_err(|_| refusal())?))
            }
        };
        if error.is_some() || bits.contains(" to ") {
            let (least, most) = bits.split_once(" to ").unwrap_or((bits, bits));
            let (least, most) = match (
                format!("{} bits", least.trim_end_matches(" bits")).parse()?,
                most.parse()?,
            ) {
                (Self::Bits(least), Self::Bits(most)) if least <= most => (least, most),
                _ => return Err(refusal()),
            };
            return Ok(Self::Adaptive { least, most, error });
        }
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(refusal)?;
        let number = &text[..digits];
        let unit = text[digits..].trim();
        let number: f64 = number.parse().map_err(|_| refusal())?;
        if unit == "bits" || unit == "bit" {
            return (number > 0.0 && number <= MOST_BITS)
                .then_some(Self::Bits(number))
                .ok_or_else(refusal);
        }
        size::bytes(text).map(Self::Bytes).ok_or_else(refusal)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bits(bits) => write!(f, "{bits} bits"),
            Self::Adaptive { least, most, error } => {
                if least < most {
                    write!(f, "{least} to ")?;
                }
                write!(f, "{most} bits")?;
                error.map_or(Ok(()), |error| write!(f, ", error {error}"))
            }
            Self::Bandit(bandit) => bandit.fmt(f),
            Self::Run(total) => write!(f, "{}{A_RUN}", Self::Bytes(total)),
            Self::Bytes(bytes) => {
                let unit = UNITS[..3].iter().rev().find(|(_, size)| bytes % size == 0 && bytes > 0);
                let (name, size) = unit.unwrap_or(&UNITS[6]);
                write!(f, "{}{name}", bytes / size)
            }
        }
    }
}

impl From<Budget> for String {
    fn from(budget: Budget) -> Self {
        budget.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adaptive_budget_gives_the_smallest_models_a_frame_of_their_own() {
        let budget: Budget = "0.25 to 1 bits, error 0.7".parse().unwrap();
        let bytes = [4, 1000, 3000, 40_000, 200_000].map(|len| budget.bytes(len));
        assert_eq!(bytes, [256, 256, 375, 4096, 6250]);
        assert_eq!(Budget::Bits(1.0).bytes(4), 0);
    }

    #[test]
    fn budgets_are_bytes_or_bits_for_each_value() {
        for (text, bytes) in [
            ("200KiB", 204_800),
            ("200 KiB", 204_800),
            ("1.5 MB", 1_500_000),
            ("17B", 17),
            ("0.1 bits", 12_500),
            ("1 bit", 125_000),
            ("0.25 bits, error 0.7", 31_250),
            ("0.25 to 1 bits, error 0.7", 31_250),
            ("0.25 to 1 bits", 31_250),
            ("0.01 to 1 bits", 4096),
            ("0.01 to 0.02 bits", 2500),
        ] {
            let budget: Budget = text.parse().unwrap();
            assert_eq!(budget.bytes(1_000_000), bytes, "{text}");
            assert_eq!(budget.to_string().parse(), Ok(budget), "{text}");
        }
        for text in [
            "",
            "200",
            "KiB",
            "-1 bits",
            "0 bits",
            "1e3 B",
            "3 apples",
            "0B",
            "nan bits",
            "99 bits",
            "0.25 bits,",
            "0.25 bits, error",
            "0.25 bits, error 0",
            "0.25 bits, error 1",
            "0.25 bits, error nan",
            "1 KiB, error 0.5",
            "0.1 bits, error 0.5, error 0.5",
            "0.1 bits a run",
            "2MiB a run a run",
        ] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
