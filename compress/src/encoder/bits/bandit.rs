//! Bits by trial and reward (`bits = { by = "bandit" }`): an agent ([`crate::rules::agent`]) for each section, with an
//! arm for each choice of bits.

use crate::encoder::task::EncodeTask;
use crate::error::Error;
use crate::rules::agent::{Outcome, Trials};
use crate::rules::bits::{BitsBandit, CHOICES};

/// An agent for each section with the rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BitsAgents {
    rule: BitsBandit,
    sections: Vec<Trials>,
}

impl BitsAgents {
    pub(crate) fn new(rule: BitsBandit, count: usize) -> Self {
        Self {
            rule,
            sections: vec![Trials::default(); count],
        }
    }

    /// Sets the bits of the tasks, which all have the rule. A section of zeros changes nothing.
    pub(crate) fn choose(&mut self, ruled: Vec<&mut EncodeTask<'_>>) {
        for (at, (task, trials)) in ruled.into_iter().zip(&mut self.sections).enumerate() {
            let is_zero = task.input.tensor.values.iter().all(|value| *value == 0.0);
            let arm = if is_zero {
                0
            } else {
                self.rule.0.choose(trials, CHOICES.len(), at)
            };
            task.set_bits(CHOICES[arm]);
        }
    }

    pub(crate) fn teach(&mut self, outcomes: impl Iterator<Item = Outcome>) {
        for (trials, outcome) in self.sections.iter_mut().zip(outcomes) {
            trials.teach(outcome);
        }
    }

    pub(crate) fn trials(&self) -> &[Trials] {
        &self.sections
    }

    /// Continues from saved trials. Those of a spec with other sections are ignored.
    ///
    /// # Errors
    /// `Mismatch` for agents of another seed; `NotFinite`.
    pub(crate) fn resume(&mut self, trials: Vec<Trials>) -> Result<(), Error> {
        for section in &trials {
            self.rule.0.accepts(section, CHOICES.len(), "bits")?;
        }
        if trials.len() == self.sections.len() {
            self.sections = trials;
        }
        Ok(())
    }
}
