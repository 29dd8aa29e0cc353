//! One section of every frame of an encoder: its codec, and what earlier frames taught.

use crate::budget::estimate::BudgetEstimate;
use crate::frame::units::{Unit, units};
use crate::layout::Layout;
use crate::rules::tracked::Tracked;
use crate::spec::{Method, Spec};

/// What is asked for one section of every frame, and what was learned of it.
#[derive(Debug)]
pub(crate) struct UnitState {
    pub(crate) unit: Unit,
    pub(crate) method: Method,
    pub(crate) tracked: Tracked,
    /// The second factor of the last time.
    pub(crate) warm: Option<Vec<f32>>,
    /// Bits that coding took for each one foretold, the last time.
    pub(crate) ratio: f64,
    /// Frames since the receiver last took one with a value of this section that was not zero.
    pub(crate) silent: u32,
}

impl UnitState {
    /// The sections of a frame under `spec`, and below how many values tensors are encoded as one.
    pub(crate) fn of(layout: &Layout, spec: &Spec) -> (u32, Vec<Self>) {
        let small = layout.tensors().iter().filter(|tensor| spec.is_small(tensor)).count();
        // One small tensor has nothing to be encoded together with, and keeps its place in the layout.
        let below = spec.small.as_ref().filter(|_| small > 1).map_or(0, |small| small.below);
        let method = |unit: &Unit| {
            let first = unit.tensors.first();
            first.map_or(&spec.default, |&at| spec.method(&layout.tensors()[at]))
        };
        let units = units(layout, below as usize).into_iter().map(|unit| UnitState {
            method: method(&unit).clone(),
            unit,
            tracked: Tracked::default(),
            warm: None,
            ratio: 1.0,
            silent: 0,
        });
        (below, units.collect())
    }

    /// The section and its codec.
    pub(crate) fn codec(&self) -> (&Unit, &Method) {
        (&self.unit, &self.method)
    }
}

impl Spec {
    /// What the budget leaves for the tensors of `layout`, if there is one.
    pub fn budget_estimate(&self, layout: &Layout) -> Option<BudgetEstimate> {
        self.budget.map(|budget| {
            let (_, units) = UnitState::of(layout, self);
            BudgetEstimate::new(budget, units.iter().map(UnitState::codec))
        })
    }
}
