//! The agent that chooses the budget of each frame (`budget = { by = "bandit", .. }`): one for all sections, whose arms are
//! budgets.

use crate::error::Error;
use crate::fidelity::Products;
use crate::rules::agent::{Outcome, Trials};
use crate::spec::budget::Budget;
use crate::spec::budget_bandit::{ARMS, BudgetBandit};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BudgetAgent {
    rule: BudgetBandit,
    trials: Trials,
}

impl BudgetAgent {
    pub(crate) fn new(budget: Option<Budget>) -> Option<Self> {
        match budget? {
            Budget::Bandit(rule) => Some(Self {
                rule,
                trials: Trials::default(),
            }),
            _ => None,
        }
    }

    pub(crate) fn choose(&mut self) {
        self.rule.agent.choose(&mut self.trials, ARMS, 0);
    }

    /// The budget that was chosen last; the smallest at first.
    pub(crate) fn budget(&self) -> Budget {
        Budget::Bits(self.rule.bits(self.trials.last()))
    }

    /// Takes the outcome of a frame: the products of its sections of trained values, and the bytes and the values of those. A
    /// frame of zeros has none.
    pub(crate) fn teach<'p>(&mut self, products: impl Iterator<Item = &'p Products>, bytes: usize, values: usize) {
        let mut kept = 0.0;
        let mut energy = 0.0;
        for section in products {
            kept += 2.0 * section.dv - section.dd;
            energy += section.vv;
        }
        if energy > 0.0 {
            self.trials.teach(Outcome {
                kept: (kept / energy).clamp(-1.0, 1.0),
                bits: 8.0 * bytes as f64 / values as f64,
            });
        }
    }

    pub(crate) fn trials(&self) -> &Trials {
        &self.trials
    }

    /// Continues from saved trials.
    ///
    /// # Errors
    /// `Mismatch` for an agent of another seed; `NotFinite`.
    pub(crate) fn resume(&mut self, trials: Trials) -> Result<(), Error> {
        self.rule.agent.accepts(&trials, ARMS, "budget")?;
        self.trials = trials;
        Ok(())
    }
}
