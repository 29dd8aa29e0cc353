//! The interfaces of a rule: encoder and TOML ([`DensityRule`]) and table entry ([`Entry`]).

use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::Table;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::Selection;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) info: MethodInfo,
    /// Kinds of its states in a state file, from 1 on; empty if the rule has no state.
    pub(crate) kinds: &'static [u32],
}

/// A rule for a density, with its parameters.
pub(crate) trait DensityRule {
    /// Removes the parameters from `table`.
    ///
    /// # Errors
    /// `Usage` names a parameter that is out of range.
    fn read(table: &mut Table) -> Result<Self, Error>
    where
        Self: Sized;

    /// The parameters, without those that have their defaults.
    fn table(&self) -> Table;

    /// Selects values of `values`, which are finite. A tensor of zeros does not change `rule_state`.
    fn choose(&self, values: &[f32], context: RoundContext, rule_state: &mut RuleState) -> Selection;

    /// Whether the rule yields a count, not a threshold.
    fn counts(&self) -> bool {
        false
    }

    /// Largest number of values of `len` that the rule selects, in any round.
    fn most(&self, len: usize) -> usize {
        len
    }

    /// Whether squared gradients change what the rule selects.
    fn wants_squared_gradients(&self) -> bool {
        false
    }

    /// Whether the bandwidth of the client's link changes what the rule selects.
    fn wants_bandwidth(&self) -> bool {
        false
    }

    /// Succeeds if the rule can go on from a state that was loaded.
    ///
    /// # Errors
    /// `Mismatch` for a state of this rule that began with another seed, or does not fit the rule.
    fn accepts(&self, _rule_state: &RuleState) -> Result<(), Error> {
        Ok(())
    }

    /// Larger magnitudes are clipped to this one before sending.
    fn clip(&self) -> Option<f32> {
        None
    }
}
