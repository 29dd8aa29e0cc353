//! The budgets that the server hands out with a round's task, in place of one for all clients and rounds.

use fl_compress::{Layout, Spec};

use crate::config::plan::error::{PlanError, value};

/// A client's budget is at least and at most this part and this multiple of that of the plan.
const RANGE: u64 = 8;

/// What bounds the budgets of clients, in bytes of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handout {
    /// Budget of each client without alignment.
    pub reference: u64,
    /// Smallest budget. A frame needs so many bytes whatever its values are.
    pub least: u64,
    /// Largest budget.
    pub most: u64,
}

/// Checks that the budgets of a cohort can be aligned.
///
/// # Errors
/// `Value` if there is no budget, or one that yields to a limit of the error.
pub(super) fn check_align(uplink: &Spec) -> Result<(), PlanError> {
    let why = match uplink.budget {
        None => "needs `compression.uplink.budget`, such as \"0.25 bits\": alignment spreads its bytes over the cohort"
            .to_owned(),
        Some(budget) if budget.error().is_some() => format!(
            "needs a `compression.uplink.budget` without `error`, because a client cannot both keep to its bytes and exceed them; \
             \"{budget}\" has one"
        ),
        Some(_) => return Ok(()),
    };
    Err(value("cohort.align", &true, why))
}

impl Handout {
    /// What bounds the budgets of updates with this codec and layout; `None` without a budget.
    pub(super) fn of(uplink: &Spec, layout: &Layout) -> Option<Self> {
        let estimate = uplink.budget_estimate(layout)?;
        let longest = fl_proto::max_frame(layout.len(), layout.tensors().len());
        let least = estimate.least.max(estimate.asked / RANGE);
        Some(Self {
            reference: estimate.asked,
            least,
            most: estimate.asked.saturating_mul(RANGE).min(longest).max(least),
        })
    }
}
