//! Chooses the bits of uniform quantization for each section (`bits = { by = .. }`): [`priced`] for all sections
//! together, [`bandit`] for each by trial.

pub(crate) mod bandit;
pub(crate) mod priced;

use crate::encoder::bits::bandit::BitsAgents;
use crate::encoder::bits::priced::Pricing;
use crate::encoder::task::EncodeTask;
use crate::error::Error;
use crate::quantize::QuantizeSpec;
use crate::rules::bits::BitsRule;
use crate::section::input::Encoded;
use crate::wire::{Reader, Writer};

/// Numbers of the controllers in a state file; one more than that of pricing with a network.
const BANDIT: u8 = 2;

/// Chooses bits, and learns from the frames.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BitsController {
    Priced(Pricing),
    Bandit(BitsAgents),
}

/// The rule of a section's quantizer.
pub(crate) fn rule(quantize: &QuantizeSpec) -> Option<BitsRule> {
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
        let mut rules = quantizers.filter_map(rule).peekable();
        let Some(&first) = rules.peek() else { return Ok(None) };
        let mut count = 0;
        for rule in rules {
            if rule != first {
                return Err(Error::Usage(format!(
                    "all tensors with a rule for `bits` share its target or its parameters and must have the same rule, not \
                     {first:?} and {rule:?}"
                )));
            }
            count += 1;
        }
        Ok(Some(match first {
            BitsRule::Priced(rule) => Self::Priced(Pricing::new(rule, count)),
            BitsRule::Bandit(rule) => Self::Bandit(BitsAgents::new(rule, count)),
        }))
    }

    /// Sets the bits of the tasks with the rule.
    pub(crate) fn choose(&mut self, tasks: &mut [EncodeTask<'_>], threads: usize) -> Result<(), Error> {
        let ruled = tasks.iter_mut();
        let ruled = ruled
            .filter(|task| rule(&task.input.tensor.quantize).is_some())
            .collect();
        match self {
            Self::Priced(pricing) => pricing.choose(ruled, threads),
            Self::Bandit(agents) => {
                agents.choose(ruled);
                Ok(())
            }
        }
    }

    /// After `sections` were coded, of which `ruled` says which have the rule, and their lengths.
    pub(crate) fn coded(&mut self, sections: &[Encoded], ruled: impl Iterator<Item = (bool, usize)>) {
        match self {
            Self::Priced(pricing) => pricing.coded(sections, ruled),
            Self::Bandit(_) => {}
        }
    }

    /// Takes the outcome of each section with the rule: energy kept, and coded bits per value.
    pub(crate) fn teach(&mut self, outcomes: impl Iterator<Item = (f64, f64)>) {
        match self {
            Self::Priced(_) => {}
            Self::Bandit(agents) => agents.teach(outcomes),
        }
    }

    /// Appends kind and state.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        match self {
            Self::Priced(pricing) => {
                out.u8(u8::from(pricing.has_network()));
                pricing.write(out);
            }
            Self::Bandit(agents) => {
                out.u8(BANDIT);
                agents.write(out);
            }
        }
    }

    /// Reads the output of [`BitsController::write`] into the controller of the spec, which keeps its rule. Ignores
    /// what does not fit a spec with another rule or other sections.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`; `Mismatch` if both have a network or a bandit of different seeds.
    pub(crate) fn read(reader: &mut Reader<'_>, wanted: Option<&mut Self>) -> Result<(), Error> {
        match reader.u8("kind of the rule for bits")? {
            kind @ 0..BANDIT => Pricing::read(reader, kind == 1, wanted.and_then(Self::pricing)),
            BANDIT => BitsAgents::read(reader, wanted.and_then(Self::agents)),
            _ => Err(reader.corrupt("kind of the rule for bits")),
        }
    }

    fn pricing(&mut self) -> Option<&mut Pricing> {
        match self {
            Self::Priced(pricing) => Some(pricing),
            Self::Bandit(_) => None,
        }
    }

    fn agents(&mut self) -> Option<&mut BitsAgents> {
        match self {
            Self::Bandit(agents) => Some(agents),
            Self::Priced(_) => None,
        }
    }
}
