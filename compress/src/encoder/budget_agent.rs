//! The agent that chooses the budget of each frame (`budget = { by = "bandit", .. }`): one for all sections, whose arms are
//! budgets.

use crate::error::Error;
use crate::fidelity::Products;
use crate::rules::agent::Arms;
use crate::spec::budget::Budget;
use crate::spec::budget_bandit::{ARMS, BudgetBandit};
use crate::wire::{Reader, Writer};

const WHAT: &str = "number of the rule for the budget";

/// An agent with its state.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BudgetAgent {
    rule: BudgetBandit,
    arms: Arms<ARMS>,
    /// Energy kept and coded bits per value of the last frame, until the agent reads them.
    outcome: Option<(f64, f64)>,
}

impl BudgetAgent {
    pub(crate) fn new(budget: Option<Budget>) -> Option<Self> {
        match budget? {
            Budget::Bandit(rule) => Some(Self {
                rule,
                arms: Arms::default(),
                outcome: None,
            }),
            _ => None,
        }
    }

    /// Chooses the budget of the next frame.
    pub(crate) fn choose(&mut self) {
        self.rule.agent.choose(&mut self.arms, self.outcome.take(), 0);
    }

    /// The budget that was chosen last; the smallest at first.
    pub(crate) fn budget(&self) -> Budget {
        Budget::Bits(self.rule.bits(self.arms.last()))
    }

    /// Takes the outcome of a frame: the products of its sections of trained values, and the bytes and the values of those. A
    /// frame of zeros has none.
    pub(crate) fn teach<'p>(&mut self, products: impl Iterator<Item = &'p Products>, bytes: usize, values: usize) {
        let (mut kept, mut energy) = (0.0, 0.0);
        for section in products {
            kept += 2.0 * section.dv - section.dd;
            energy += section.vv;
        }
        if energy > 0.0 && self.outcome.is_none() {
            let bits = 8.0 * bytes as f64 / values as f64;
            self.outcome = Some(((kept / energy).clamp(-1.0, 1.0), bits));
        }
    }

    /// Appends the numbers of the arms, a flag and the outcome.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let numbers = self.arms.write(self.rule.agent.seed);
        numbers.into_iter().for_each(|number| out.f64(number));
        out.u8(u8::from(self.outcome.is_some()));
        let outcome = self.outcome.map(|(kept, bits)| [kept, bits]);
        outcome.into_iter().flatten().for_each(|number| out.f64(number));
    }

    /// Reads the output of [`BudgetAgent::write`]. Ignores it for a spec without an agent.
    ///
    /// # Errors
    /// `Truncated`, `NotFinite`, `Corrupt`; `Mismatch` for an agent of another seed.
    pub(crate) fn read(reader: &mut Reader<'_>, wanted: Option<&mut Self>) -> Result<(), Error> {
        let mut numbers = Arms::<ARMS>::default().write(0);
        for place in &mut numbers {
            *place = reader.finite(WHAT)?;
        }
        let mut outcome = [0.0; 2];
        let has_outcome = reader.flag("whether the budget has an outcome")?;
        if has_outcome {
            for place in &mut outcome {
                *place = reader.finite(WHAT)?;
            }
        }
        let Some(wanted) = wanted else { return Ok(()) };
        let agent = wanted.rule.agent;
        agent.accepts::<ARMS>(&numbers, "budget")?;
        wanted.arms = Arms::read(&numbers, agent.seed);
        wanted.outcome = has_outcome.then_some((outcome[0], outcome[1]));
        Ok(())
    }
}
