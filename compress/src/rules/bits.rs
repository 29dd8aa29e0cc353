//! A fixed number of bits, or a rule that chooses it for each tensor.

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::forms::rule::{self, NumberOrRule, Table};
use crate::rules::agent::{self, Agent};

// The numbers of bits from which a rule chooses.
pub(crate) const CHOICES: [u32; 6] = [1, 2, 3, 4, 6, 8];

// The most that a uniform quantizer takes: its symbols are bytes.
const MOST: u32 = 8;
const TARGET: f64 = 2.0;
const TARGETS: RangeInclusive<f64> = 0.001..=8.0;
// The default of a bandit's `worth`: of Gaussian values, about three bits are then best.
const WORTH: f64 = 0.05;
const NAMES: [(&str, BitsBy); 2] = [("oracle", BitsBy::Oracle), ("learned", BitsBy::Learned)];

/// Bits per value: `4`, `{ by = "learned" | "oracle", target = 2.0 }` or `{ by = "bandit", worth = 0.05 }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BitsSpec {
    /// A constant, from 1 to 8.
    Fixed(u32),
    /// Chosen for each tensor and frame.
    Rule(BitsRule),
}

/// Chooses 1, 2, 3, 4, 6 or 8 bits for each tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BitsRule {
    /// So that the weighted error of all tensors is least at the target rate.
    Priced(PricedBits),
    /// By trial: the bits whose frames kept the most energy for their bytes.
    Bandit(BitsBandit),
}

/// How bits are priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitsBy {
    /// The least `error + lambda bits`, after coding each tensor with every choice.
    Oracle,
    /// A small network, trained on errors and bits that are measured on samples.
    Learned,
}

/// Minimizes the weighted error of all tensors at the target rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PricedBits {
    pub(crate) by: BitsBy,
    /// Coded bits per value of the tensors, indices included.
    pub(crate) target: f64,
    /// Seed of the network's first weights.
    pub(crate) seed: u32,
}

/// An agent for each tensor, with an arm for each choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BitsBandit(pub(crate) Agent);

impl BitsSpec {
    /// The number, or the largest that the rule may choose.
    pub fn most(&self) -> u32 {
        match *self {
            Self::Fixed(bits) => bits,
            Self::Rule(_) => MOST,
        }
    }
}

impl NumberOrRule for BitsSpec {
    fn forms() -> String {
        "a number of bits from 1 to 8, or a rule: { by = \"oracle\" | \"learned\" | \"bandit\", .. }".to_owned()
    }

    fn number(number: f64) -> Result<Self, Error> {
        if number.fract() == 0.0 && (1.0..=f64::from(MOST)).contains(&number) {
            return Ok(Self::Fixed(number as u32));
        }
        Err(Error::Usage(format!("uniform takes 1 to {MOST} bits, not {number}")))
    }

    fn rule(by: &str, table: &mut Table) -> Result<Option<Self>, Error> {
        if by == agent::NAME {
            let agent = Agent::read(table, WORTH)?;
            return Ok(Some(Self::Rule(BitsRule::Bandit(BitsBandit(agent)))));
        }
        let Some((_, by)) = NAMES.into_iter().find(|(name, _)| *name == by) else {
            return Ok(None);
        };
        let target = table.number("target", TARGET, TARGETS)?;
        let seed = match by {
            BitsBy::Learned => table.seed()?,
            BitsBy::Oracle => 0,
        };
        Ok(Some(Self::Rule(BitsRule::Priced(PricedBits { by, target, seed }))))
    }
}

impl BitsRule {
    fn table(&self) -> Table {
        match self {
            Self::Bandit(BitsBandit(agent)) => agent.in_table(Table::by(agent::NAME), WORTH),
            Self::Priced(PricedBits { by, target, seed }) => {
                let name = NAMES.into_iter().find(|(_, known)| known == by);
                Table::by(name.map_or("", |(name, _)| name))
                    .with("target", *target, TARGET)
                    .with("seed", f64::from(*seed), 0.0)
            }
        }
    }
}

impl<'de> Deserialize<'de> for BitsSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        rule::deserialize(deserializer)
    }
}

impl Serialize for BitsSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(bits) => bits.serialize(serializer),
            Self::Rule(rule) => rule.table().serialize(serializer),
        }
    }
}
