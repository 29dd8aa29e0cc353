//! One section of every frame of an encoder: its codec, and what the encoder learned from earlier frames.

use crate::budget::estimate::{BudgetEstimate, least_bytes};
use crate::frame::groups::{TensorGroup, tensor_groups};
use crate::layout::{Layout, Role};
use crate::rules::rule_state::RuleState;
use crate::spec::Spec;
use crate::spec::method::Method;
use crate::spec::weight::Weight;

/// The codec of one section of every frame, and its state between frames.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) group: TensorGroup,
    pub(crate) method: Method,
    pub(crate) weight: Weight,
    pub(crate) rule_state: RuleState,
    /// Second factor of the previous frame: the warm start of a low-rank iteration.
    pub(crate) warm: Option<Vec<f32>>,
    /// Actual bits / estimated bits of the previous frame.
    pub(crate) ratio: f64,
    /// Frames since the receiver last accepted one with a nonzero value in this section.
    pub(crate) silent: u32,
}

impl GroupState {
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
            .map(|group| GroupState {
                method: method(&group).clone(),
                weight: weight(&group),
                group,
                rule_state: RuleState::default(),
                warm: None,
                ratio: 1.0,
                silent: 0,
            });
        (merge_below, groups.collect())
    }

    pub(crate) fn wants_squared_gradients(&self) -> bool {
        let wants = self.method.wants_squared_gradients() || self.weight == Weight::Fisher;
        self.group.role == Role::Trained && wants
    }

    /// The section and its codec.
    pub(crate) fn codec(&self) -> (&TensorGroup, &Method) {
        (&self.group, &self.method)
    }
}

impl Spec {
    /// The estimate of the budget for the tensors of `layout`; `None` without a budget.
    pub fn budget_estimate(&self, layout: &Layout) -> Option<BudgetEstimate> {
        self.budget.map(|budget| {
            let (_, groups) = GroupState::of(layout, self);
            BudgetEstimate::new(budget, groups.iter().map(GroupState::codec))
        })
    }

    /// The smallest budget in bytes that every frame of the tensors of `layout` meets, whatever their values are.
    pub fn smallest_budget(&self, layout: &Layout) -> u64 {
        let (_, groups) = GroupState::of(layout, self);
        least_bytes(groups.iter().map(GroupState::codec))
    }
}
