//! The budgets that the server hands out with a round's task, in place of one for all clients and rounds.

use fl_compress::{Budget, Layout, Spec};

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
    pub most: u64,
    /// Bytes of each client's updates in the run. Without, budgets are aligned over the cohort.
    pub run: Option<u64>,
}

/// Takes the budget for a run from the codec of updates, which gets an even share of it.
///
/// # Errors
/// `Value` if a round's share has no byte, or model updates have such a budget.
pub(super) fn split_run(uplink: &mut Spec, downlink: &Spec, rounds: u64) -> Result<Option<u64>, PlanError> {
    if let Some(budget @ Budget::Run(_)) = downlink.budget {
        let why =
            "only the updates of clients can have a budget for a run; give a budget of a frame, such as \"200KiB\"";
        return Err(value(
            "compression.downlink.budget",
            &format!("\"{budget}\""),
            why.to_owned(),
        ));
    }
    let Some(budget @ Budget::Run(total)) = uplink.budget else {
        return Ok(None);
    };
    if total < rounds {
        let why = format!("leaves no byte for each of {rounds} rounds; give more bytes, or fewer `rounds`");
        return Err(value("compression.uplink.budget", &format!("\"{budget}\""), why));
    }
    uplink.budget = Some(Budget::Bytes(total / rounds));
    Ok(Some(total))
}

/// Checks that the budgets of a cohort can be aligned.
///
/// # Errors
/// `Value` if there is no budget, one for a run, or one that yields to a limit of the error.
pub(super) fn check_align(uplink: &Spec, run: Option<u64>) -> Result<(), PlanError> {
    let why = match uplink.budget {
        _ if run.is_some() => {
            "cannot be combined with a budget for a run: alignment would have fast clients spend it before the last round".to_owned()
        }
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
    pub(super) fn of(uplink: &Spec, run: Option<u64>, layout: &Layout) -> Option<Self> {
        let estimate = uplink.budget_estimate(layout)?;
        let longest = fl_proto::max_frame(layout.len(), layout.tensors().len());
        let exact = estimate.exact().min(longest);
        let least = estimate.least.max(estimate.asked.min(exact) / RANGE);
        let most = match run {
            // More than the exact values would be left unused, and would be missing elsewhere.
            None => estimate.asked.saturating_mul(RANGE).min(exact).max(least),
            Some(_) => longest,
        };
        Some(Self {
            reference: match run {
                None => estimate.asked.clamp(least, most),
                Some(_) => estimate.asked,
            },
            least,
            most,
            run,
        })
    }
}
