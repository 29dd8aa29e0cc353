//! Bits by trial and reward (`bits = { by = "bandit" }`): an agent ([`crate::rules::agent`]) for each section, with an
//! arm for each choice of bits.

use crate::encoder::task::EncodeTask;
use crate::error::Error;
use crate::rules::agent::Arms;
use crate::rules::bits::{BitsBandit, CHOICES};
use crate::wire::{Reader, Writer};

const COUNT: usize = CHOICES.len();
const WHAT: &str = "number of the rule for bits";

/// An agent for each section with the rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BitsAgents {
    rule: BitsBandit,
    sections: Vec<Section>,
}

/// What is remembered of a section.
#[derive(Debug, Clone, Default, PartialEq)]
struct Section {
    arms: Arms<COUNT>,
    /// Energy kept and coded bits per value of the last frame, until the agent reads them.
    outcome: Option<(f64, f64)>,
}

impl BitsAgents {
    /// For `count` sections.
    pub(crate) fn new(rule: BitsBandit, count: usize) -> Self {
        Self {
            rule,
            sections: vec![Section::default(); count],
        }
    }

    /// Sets the bits of the tasks, which all have the rule. A section of zeros changes nothing.
    pub(crate) fn choose(&mut self, ruled: Vec<&mut EncodeTask<'_>>) {
        let agent = self.rule.0;
        for (at, (task, section)) in ruled.into_iter().zip(&mut self.sections).enumerate() {
            let is_zero = task.input.tensor.values.iter().all(|value| *value == 0.0);
            let arm = match is_zero {
                true => 0,
                false => agent.choose(&mut section.arms, section.outcome.take(), at),
            };
            task.set_bits(CHOICES[arm]);
        }
    }

    /// Takes the outcomes of the sections. That of a section of zeros, for which no bits were chosen, does not replace
    /// one that was not read yet.
    pub(crate) fn teach(&mut self, outcomes: impl Iterator<Item = (f64, f64)>) {
        for (section, outcome) in self.sections.iter_mut().zip(outcomes) {
            if !section.arms.is_new() && section.outcome.is_none() {
                section.outcome = Some(outcome);
            }
        }
    }

    /// Appends the number of sections; for each a flag and, if it was ever chosen for, the numbers of its arms, a flag
    /// and the outcome.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        out.varint(self.sections.len() as u64);
        for Section { arms, outcome } in &self.sections {
            out.u8(u8::from(!arms.is_new()));
            if arms.is_new() {
                continue;
            }
            let numbers = arms.write(self.rule.0.seed);
            numbers.into_iter().for_each(|number| out.f64(number));
            out.u8(u8::from(outcome.is_some()));
            let outcome = outcome.map(|(kept, bits)| [kept, bits]);
            outcome.into_iter().flatten().for_each(|number| out.f64(number));
        }
    }

    /// Reads the output of [`BitsAgents::write`]. Ignores it for a spec with other sections.
    ///
    /// # Errors
    /// `Truncated`, `NotFinite`, `Corrupt`; `Mismatch` for agents of another seed.
    pub(crate) fn read(reader: &mut Reader<'_>, mut wanted: Option<&mut Self>) -> Result<(), Error> {
        let count = reader.varint("sections of the rule for bits")?;
        for at in 0..count {
            if !reader.flag("whether bits were chosen for a section")? {
                continue;
            }
            let mut numbers = Arms::<COUNT>::default().write(0);
            for place in &mut numbers {
                *place = reader.finite(WHAT)?;
            }
            let mut outcome = [0.0; 2];
            let has_outcome = reader.flag("whether a section has an outcome")?;
            if has_outcome {
                for place in &mut outcome {
                    *place = reader.finite(WHAT)?;
                }
            }
            let Some(wanted) = &mut wanted else { continue };
            let agent = wanted.rule.0;
            agent.accepts::<COUNT>(&numbers, "bits")?;
            let fits = count == wanted.sections.len() as u64;
            if let Some(section) = wanted.sections.get_mut(at as usize).filter(|_| fits) {
                section.arms = Arms::read(&numbers, agent.seed);
                section.outcome = has_outcome.then_some((outcome[0], outcome[1]));
            }
        }
        Ok(())
    }
}
