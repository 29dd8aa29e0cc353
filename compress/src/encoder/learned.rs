//! What an encoder learns from its frames, besides its memory: the controllers that choose numbers of the spec before a frame is
//! encoded, and learn from its outcome.

use crate::encoder::bits::BitsController;
use crate::encoder::budget_agent::BudgetAgent;
use crate::encoder::section::{SectionCodec, SectionState};
use crate::error::Error;
use crate::fidelity::{Fidelity, Products};
use crate::rules::agent::Outcome;
use crate::spec::budget::Budget;

/// What was learned. A frame that cannot be encoded changes nothing of it.
#[derive(Debug, Clone)]
pub(crate) struct LearnedState {
    /// In the order of the sections of a frame.
    pub(crate) sections: Vec<SectionState>,
    /// Chooses the bits of sections, if a rule does.
    pub(crate) bits: Option<BitsController>,
    /// Chooses the budget of each frame, if a rule does.
    pub(crate) budget: Option<BudgetAgent>,
}

/// One section of a frame as it was encoded.
pub(crate) struct SectionOutcome {
    pub(crate) bytes: usize,
    pub(crate) products: Products,
    pub(crate) fidelity: Fidelity,
}

impl LearnedState {
    /// Before the first frame.
    ///
    /// # Errors
    /// `Usage` if sections have different rules for bits.
    pub(crate) fn new(codecs: &[SectionCodec], budget: Option<Budget>) -> Result<Self, Error> {
        Ok(Self {
            sections: codecs.iter().map(|_| SectionState::new()).collect(),
            bits: BitsController::new(codecs.iter().map(|codec| &codec.method.quantize))?,
            budget: BudgetAgent::new(budget),
        })
    }

    /// Learns from a frame. Shapes: one codec and one outcome for each section.
    pub(crate) fn after(&mut self, codecs: &[SectionCodec], frame: &[SectionOutcome]) {
        if let Some(agent) = &mut self.budget {
            let trained = || codecs.iter().zip(frame).filter(|(codec, _)| codec.is_trained());
            let bytes = trained().map(|(_, section)| section.bytes).sum();
            let values = trained().map(|(codec, _)| codec.group.shape.len()).sum::<usize>();
            agent.teach(trained().map(|(_, section)| &section.products), bytes, values.max(1));
        }
        let outcomes: Vec<Outcome> = codecs
            .iter()
            .zip(frame)
            .map(|(codec, section)| Outcome {
                kept: section.fidelity.kept.into(),
                bits: 8.0 * section.bytes as f64 / codec.group.shape.len() as f64,
            })
            .collect();
        for (state, outcome) in self.sections.iter_mut().zip(&outcomes) {
            if let Some(trials) = &mut state.rule_state.trials {
                trials.teach(*outcome);
            }
        }
        if let Some(bits) = &mut self.bits {
            bits.after(&outcomes);
        }
    }
}
