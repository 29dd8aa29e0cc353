//! A budget by trial and reward, `{ by = "bandit", least = "0.1 bits", most = "1 bits" }`: its parameters and their text.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::forms::rule::Table;
use crate::math;
use crate::rules::agent::{Agent, NAME};

// Most bits per value of any budget.
pub(crate) const MOST_BITS: f64 = 64.0;
// Number of budgets from which the agent chooses.
pub(crate) const ARMS: usize = 5;
// Default of `worth`: of Laplace-distributed values, about a quarter of a bit per value is then best.
const WORTH: f64 = 1.0;
// Between the range and the numbers that differ from their defaults.
pub(crate) const BY: &str = " bits by bandit";
// Numbers of the agent, in the order of their text.
pub(crate) const NUMBERS: [&str; 3] = ["worth", "explore", "seed"];

/// Bits per value of each frame, chosen by an agent from `least` to `most` with equal ratios: those whose frames kept the most
/// energy for their bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetBandit {
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) agent: Agent,
}

impl BudgetBandit {
    /// From a range of bits per value, and numbers of the agent.
    ///
    /// # Errors
    /// `Usage` names the key that is out of range.
    pub(crate) fn new(least: f64, most: f64, mut numbers: Table) -> Result<Self, Error> {
        for (key, bits) in [("least", least), ("most", most)] {
            if !(bits > 0.0 && bits <= MOST_BITS) {
                return Err(Error::Usage(format!(
                    "`budget`: `{key}` must be bits per value above 0 and at most {MOST_BITS}, such as \"0.1 bits\", not {bits} bits"
                )));
            }
        }
        if least >= most {
            return Err(Error::Usage(format!(
                "`budget`: `least` must be below `most`, not {least} bits and {most} bits"
            )));
        }
        let agent = Agent::read(&mut numbers, WORTH).map_err(|error| Error::Usage(format!("`budget`: {error}")))?;
        Ok(Self { least, most, agent })
    }

    pub(crate) fn bits(&self, arm: usize) -> f64 {
        self.least * math::pow(self.most / self.least, arm as f64 / (ARMS - 1) as f64)
    }
}

impl fmt::Display for BudgetBandit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}{BY}", self.least, self.most)?;
        let mut numbers = self.agent.in_table(Table::by(NAME), WORTH);
        NUMBERS
            .into_iter()
            .filter_map(|key| Some((key, numbers.take(key)?)))
            .try_for_each(|(key, number)| write!(f, ", {key} {number}"))
    }
}

impl FromStr for BudgetBandit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refusal = || {
            Error::Usage(format!(
                "`budget`: \"{text}\" is not a range for an agent; give {{ by = \"{NAME}\", least = \"0.1 bits\", most = \"1 bits\" }}"
            ))
        };
        let (range, rest) = text.split_once(BY).ok_or_else(refusal)?;
        let (least, most) = range.split_once(" to ").ok_or_else(refusal)?;
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| refusal());
        let mut numbers = Table::default();
        for part in rest.split(',').skip(1) {
            let (key, value) = part.trim().split_once(' ').ok_or_else(refusal)?;
            let key = NUMBERS.into_iter().find(|known| *known == key).ok_or_else(refusal)?;
            numbers = numbers.with(key, number(value)?, f64::NAN);
        }
        if !rest.is_empty() && !rest.starts_with(',') {
            return Err(refusal());
        }
        Self::new(number(least)?, number(most)?, numbers)
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::Spec;
    use crate::spec::budget::Budget;

    fn budget(text: &str) -> Result<Budget, String> {
        let spec: Result<Spec, _> = toml::from_str(&format!("budget = {text}"));
        spec.map_err(|e| e.to_string()).map(|spec| spec.budget.unwrap())
    }

    #[test]
    fn tables_and_texts_round_trip() {
        for (table, text) in [
            (
                "{ by = 'bandit', least = '0.1 bits', most = '1 bits' }",
                "0.1 to 1 bits by bandit",
            ),
            (
                "{ by = 'bandit', least = '0.5 bits', most = '2 bits', worth = 1, explore = 0.1, seed = 0 }",
                "0.5 to 2 bits by bandit",
            ),
            (
                "{ by = 'bandit', least = '0.05 bits', most = '8 bits', worth = 0.25, explore = 0.5, seed = 7 }",
                "0.05 to 8 bits by bandit, worth 0.25, explore 0.5, seed 7",
            ),
        ] {
            let found = budget(table).unwrap();
            assert_eq!(found.to_string(), text);
            assert_eq!(text.parse(), Ok(found));
            assert_eq!(budget(&format!("'{text}'")), Ok(found));
        }
    }

    #[test]
    fn bad_ranges_and_numbers_are_refused_by_key() {
        for (table, named) in [
            ("{ by = 'bandit' }", "`least` is missing"),
            ("{ by = 'bandit', least = '0.1 bits' }", "`most` is missing"),
            (
                "{ by = 'bandit', least = '1 bits', most = '0.1 bits' }",
                "`least` must be below `most`",
            ),
            (
                "{ by = 'bandit', least = '1 bits', most = '1 bits' }",
                "`least` must be below `most`",
            ),
            (
                "{ by = 'bandit', least = '0 bits', most = '1 bits' }",
                "`least` must be bits",
            ),
            (
                "{ by = 'bandit', least = '1KiB', most = '2KiB' }",
                "`least` must be bits",
            ),
            (
                "{ by = 'bandit', least = '1 bits', most = '65 bits' }",
                "`most` must be bits",
            ),
            (
                "{ by = 'bandit', least = 0.1, most = '1 bits' }",
                "`least` must be bits",
            ),
            (
                "{ by = 'bandit', least = '0.1 bits', most = '1 bits', explore = 2 }",
                "`explore` must be from 0 to 1",
            ),
            (
                "{ by = 'bandit', least = '0.1 bits', most = '1 bits', worth = -1 }",
                "`worth` must be from 0",
            ),
            (
                "{ by = 'bandit', least = '0.1 bits', most = '1 bits', seed = 0.5 }",
                "`seed` must be a whole number",
            ),
            (
                "{ by = 'bandit', least = '0.1 bits', most = '1 bits', seed = 'a' }",
                "`seed` must be a number",
            ),
            (
                "{ by = 'oracle', least = '0.1 bits', most = '1 bits' }",
                "`by` must be \"bandit\"",
            ),
            (
                "{ by = 'bandit', least = '0.1 bits', most = '1 bits', run = '1MiB' }",
                "`run` stands alone",
            ),
            (
                "{ by = 'bandit', least = '0.1 bits', most = '1 bits', link = '1Mbit/s' }",
                "`link` is not a parameter",
            ),
            (
                "{ link = '1Mbit/s', deadline = '1s', seed = 3 }",
                "`seed` is a parameter of `by`",
            ),
            ("'1 to 0.1 bits by bandit'", "`least` must be below `most`"),
            ("'0.1 to 1 bits by bandits'", "is not a range for an agent"),
            ("'0.1 to 1 bits by bandit, error 0.5'", "is not a range for an agent"),
        ] {
            let error = budget(table).unwrap_err();
            assert!(error.contains(named), "{table}: {error}");
        }
    }

    #[test]
    fn arms_have_equal_ratios() {
        let Budget::Bandit(bandit) = "0.25 to 4 bits by bandit".parse().unwrap() else {
            panic!("a bandit")
        };
        assert_eq!([0, 1, 2, 3, 4].map(|arm| bandit.bits(arm)), [0.25, 0.5, 1.0, 2.0, 4.0]);
    }
}
