//! One section of every frame of an encoder: its codec, and what the encoder learned of it from earlier frames.

use serde::{Deserialize, Serialize};

use crate::budget::estimate::{BudgetEstimate, least_bytes};
use crate::error::Error;
use crate::finite::all_finite;
use crate::frame::groups::{TensorGroup, tensor_groups};
use crate::layout::{Layout, Role};
use crate::rules;
use crate::rules::rule_state::RuleState;
use crate::spec::Spec;
use crate::spec::method::Method;
use crate::spec::weight::Weight;

#[derive(Debug)]
pub(crate) struct SectionCodec {
    pub(crate) group: TensorGroup,
    pub(crate) method: Method,
    pub(crate) weight: Weight,
}

/// What an encoder learned of a section from earlier frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SectionState {
    pub(crate) rule_state: RuleState,
    /// Second factor of the previous frame: the warm start of a low-rank iteration.
    pub(crate) warm: Option<Vec<f32>>,
    /// Actual bits / estimated bits of the previous frame.
    pub(crate) ratio: f64,
    /// Frames since the receiver last accepted one with a nonzero value in this section.
    pub(crate) silent: u32,
}

// More than any ratio of actual to estimated bits.
const MOST_RATIO: f64 = 100.0;

impl SectionState {
    /// Before the first frame.
    pub(crate) fn new() -> Self {
        Self {
            rule_state: RuleState::default(),
            warm: None,
            ratio: 1.0,
            silent: 0,
        }
    }

    /// Succeeds if the numbers are possible.
    ///
    /// # Errors
    /// `NotFinite`; `Mismatch` for an unknown rule or a ratio that no frame has.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !rules::is_kind(self.rule_state.kind) {
            return Err(Error::Mismatch(
                "the state has numbers of a rule that this version of the program does not know; start with a new state".to_owned(),
            ));
        }
        if !(MOST_RATIO.recip()..=MOST_RATIO).contains(&self.ratio) {
            return Err(Error::Mismatch(format!(
                "the state has {} times the estimated bits of a section; start with a new state",
                self.ratio
            )));
        }
        if !(self.rule_state.is_finite() && all_finite(self.warm.as_deref().unwrap_or_default())) {
            return Err(Error::NotFinite("what was learned of a section".to_owned()));
        }
        Ok(())
    }
}

impl SectionCodec {
    /// The sections of a frame under `spec`, and the number of values below which tensors are merged.
    pub(crate) fn of(layout: &Layout, spec: &Spec) -> (u32, Vec<Self>) {
        let small = layout
            .tensors()
            .iter()
            .filter(|tensor| tensor.len > 0 && spec.is_small(tensor))
            .count();
        // A single small tensor is not merged and keeps its place in the layout.
        let merge_below = spec.small.as_ref().filter(|_| small > 1).map_or(0, |small| small.below);
        let method = |group: &TensorGroup| {
            let first = group.tensors.first();
            first.map_or(&spec.default, |&at| spec.method(&layout.tensors()[at]))
        };
        let weight = |group: &TensorGroup| match (group.role, group.tensors.as_slice()) {
            (Role::Trained, &[only]) => spec.weight_of(&layout.tensors()[only]),
            (Role::Trained, _) => spec.weight,
            _ => Weight::default(),
        };
        let groups = tensor_groups(layout, merge_below as usize)
            .into_iter()
            .map(|group| Self {
                method: method(&group).clone(),
                weight: weight(&group),
                group,
            });
        (merge_below, groups.collect())
    }

    pub(crate) fn wants_squared_gradients(&self) -> bool {
        let wants = self.method.wants_squared_gradients() || self.weight == Weight::Fisher;
        self.is_trained() && wants
    }

    /// Whether the values are trained ones: buffers and counters are sent whole.
    pub(crate) fn is_trained(&self) -> bool {
        self.group.role == Role::Trained
    }

    pub(crate) fn codec(&self) -> (&TensorGroup, &Method) {
        (&self.group, &self.method)
    }
}

impl Spec {
    /// The estimate of the budget for the tensors of `layout`; `None` without a budget.
    pub fn budget_estimate(&self, layout: &Layout) -> Option<BudgetEstimate> {
        self.budget.map(|budget| {
            let (_, groups) = SectionCodec::of(layout, self);
            BudgetEstimate::new(budget, groups.iter().map(SectionCodec::codec))
        })
    }

    /// The smallest budget in bytes that every frame of the tensors of `layout` meets, whatever their values are.
    pub fn smallest_budget(&self, layout: &Layout) -> u64 {
        let (_, groups) = SectionCodec::of(layout, self);
        least_bytes(groups.iter().map(SectionCodec::codec))
    }
}
