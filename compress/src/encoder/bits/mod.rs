//! Chooses the bits of uniform quantization for each section (`bits = { by = .. }`): [`priced`] for all sections
//! together, [`bandit`] for each by trial.

pub(crate) mod bandit;
pub(crate) mod priced;

use serde::{Deserialize, Serialize};

use crate::encoder::bits::bandit::BitsAgents;
use crate::encoder::bits::priced::{Pricing, PricingState};
use crate::encoder::task::EncodeTask;
use crate::error::Error;
use crate::quantize::QuantizeSpec;
use crate::rules::agent::{Outcome, Trials};
use crate::rules::bits::BitsRule;
use crate::section::input::EncodedSection;

/// Chooses bits, and learns from the frames.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BitsController {
    /// By section, whether a rule chooses its bits.
    is_ruled: Vec<bool>,
    method: ControlMethod,
}

#[derive(Debug, Clone, PartialEq)]
enum ControlMethod {
    Priced(Pricing),
    Bandit(BitsAgents),
}

/// What a controller learned, in a state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum BitsState {
    Priced(PricingState),
    Bandit(Vec<Trials>),
}

fn rule(quantize: &QuantizeSpec) -> Option<BitsRule> {
    match quantize {
        QuantizeSpec::Uniform(uniform) => uniform.rule(),
        _ => None,
    }
}

impl BitsController {
    /// The controller of all sections whose bits are chosen by a rule; `None` if there are none.
    ///
    /// # Errors
    /// `Usage` if sections have different rules: a multiplier is one for all.
    pub(crate) fn new<'q>(quantizers: impl Iterator<Item = &'q QuantizeSpec>) -> Result<Option<Self>, Error> {
        let rules: Vec<Option<BitsRule>> = quantizers.map(rule).collect();
        let Some(&first) = rules.iter().flatten().next() else {
            return Ok(None);
        };
        if let Some(other) = rules.iter().flatten().find(|rule| **rule != first) {
            return Err(Error::Usage(format!(
                "all tensors with a rule for `bits` share its target or its parameters and must have the same rule, not \
                 {first:?} and {other:?}"
            )));
        }
        let count = rules.iter().flatten().count();
        Ok(Some(Self {
            is_ruled: rules.iter().map(Option::is_some).collect(),
            method: match first {
                BitsRule::Priced(rule) => ControlMethod::Priced(Pricing::new(rule, count)),
                BitsRule::Bandit(rule) => ControlMethod::Bandit(BitsAgents::new(rule, count)),
            },
        }))
    }

    /// Those of all sections that a rule chooses for.
    fn ruled<T>(is_ruled: &[bool], sections: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        is_ruled
            .iter()
            .zip(sections)
            .filter(|(is_ruled, _)| **is_ruled)
            .map(|(_, section)| section)
    }

    pub(crate) fn before(&mut self, tasks: &mut [EncodeTask<'_>], threads: usize) -> Result<(), Error> {
        let ruled = Self::ruled(&self.is_ruled, tasks.iter_mut()).collect();
        match &mut self.method {
            ControlMethod::Priced(pricing) => pricing.choose(ruled, threads),
            ControlMethod::Bandit(agents) => {
                agents.choose(ruled);
                Ok(())
            }
        }
    }

    pub(crate) fn coded(&mut self, sections: &[EncodedSection]) {
        if let ControlMethod::Priced(pricing) = &mut self.method {
            pricing.coded(Self::ruled(&self.is_ruled, sections.iter()));
        }
    }

    pub(crate) fn after(&mut self, outcomes: &[Outcome]) {
        if let ControlMethod::Bandit(agents) = &mut self.method {
            agents.teach(Self::ruled(&self.is_ruled, outcomes.iter().copied()));
        }
    }

    pub(crate) fn state(&self) -> BitsState {
        match &self.method {
            ControlMethod::Priced(pricing) => BitsState::Priced(pricing.state().clone()),
            ControlMethod::Bandit(agents) => BitsState::Bandit(agents.trials().to_vec()),
        }
    }

    /// Continues from a saved state. A state that does not fit a spec with another rule or other sections is ignored.
    ///
    /// # Errors
    /// `NotFinite`; `Mismatch` if both have a network or a bandit of different seeds, or a network has another size.
    pub(crate) fn resume(&mut self, saved: BitsState) -> Result<(), Error> {
        match (&mut self.method, saved) {
            (ControlMethod::Priced(pricing), BitsState::Priced(state)) => pricing.resume(state),
            (ControlMethod::Bandit(agents), BitsState::Bandit(trials)) => agents.resume(trials),
            _ => Ok(()),
        }
    }
}
