//! The budgets of a plan against the tensors that travel: what is refused before a run begins, and what a budget leaves.

use std::fmt::Write as _;
use std::sync::Arc;

use fl_compress::{Budget, BudgetEstimate, Encoder, Layout};

use crate::config::plan::RunPlan;
use crate::model::space::first_weights;

/// Checks the budgets of `plan` with its first weights, which are read. Returns the warnings.
///
/// # Errors
/// What is wrong with the first weights; the key of a budget that cannot be kept, and the smallest one that can.
pub fn warnings(plan: &RunPlan) -> Result<Vec<String>, String> {
    let model = first_weights(plan).map_err(|why| why.to_string())?;
    check(plan, &model.layout)?;
    let lines = estimates(plan, &model.layout).into_iter();
    let lines = lines.flat_map(|(table, estimate)| lines_of(table, &estimate, &model.layout));
    Ok(lines.filter(|line| line.starts_with(WARNING)).collect())
}

/// How a line that warns begins.
pub(crate) const WARNING: &str = "WARNING: ";

/// Succeeds if the codecs of `plan` can keep their budgets for the tensors of `layout`.
///
/// # Errors
/// The key, what is wrong, and the smallest budget that can be kept.
pub(crate) fn check(plan: &RunPlan, layout: &Layout) -> Result<(), String> {
    if let Some(why) = too_small(plan, layout) {
        return Err(why);
    }
    let layout = Arc::new(layout.clone());
    for (table, spec) in [("uplink", &plan.uplink), ("downlink", &plan.downlink)] {
        Encoder::new(Arc::clone(&layout), spec).map_err(|why| format!("compression.{table}: {why}"))?;
    }
    Ok(())
}

/// What the budgets of both directions leave.
pub(crate) fn estimates(plan: &RunPlan, layout: &Layout) -> Vec<(&'static str, BudgetEstimate)> {
    let specs = [("uplink", &plan.uplink), ("downlink", &plan.downlink)].into_iter();
    specs
        .filter_map(|(table, spec)| Some((table, spec.budget_estimate(layout)?)))
        .collect()
}

/// Why a budget for the run cannot be kept, if it cannot.
fn too_small(plan: &RunPlan, layout: &Layout) -> Option<String> {
    let total = plan.run_budget?;
    let rounds = plan.rounds;
    let least = plan.uplink.smallest_budget(layout);
    (total / rounds < least).then(|| {
        let needed = Budget::Bytes(least.saturating_mul(rounds));
        format!(
            "compression.uplink.budget: {total} bytes for the run leave {} for each of {rounds} rounds, and a frame may need \
             {least} bytes whatever its values are: give at least {{ run = \"{needed}\" }}",
            total / rounds
        )
    })
}

/// A line about the budgets that the server hands out with a round's task.
pub(crate) fn handed_out(plan: &RunPlan, layout: &Layout) -> Option<String> {
    let handout = plan.clone().with_layout(layout).handout?;
    Some(match handout.run {
        Some(total) => format!(
            "compression.uplink: {total} bytes for the updates of each client in the run; a round gets an equal share of what is left"
        ),
        None => format!(
            "cohort.align: a client has {} to {} bytes for a frame, and the clients of a cohort {} on average",
            handout.least, handout.most, handout.reference
        ),
    })
}

/// A line about a budget, and a warning if it leaves next to nothing for the model's tensors or is larger than all values.
pub(crate) fn lines_of(table: &str, estimate: &BudgetEstimate, layout: &Layout) -> Vec<String> {
    let mut lines = vec![allotted(table, estimate)];
    if estimate.starves() {
        let least = estimate.least;
        let enough = match estimate.enough() {
            Budget::Bytes(bytes) => format!("\"{}\" a frame", Budget::Bytes(bytes)),
            bits => format!("\"{bits}\""),
        };
        let named = starved(estimate, layout);
        lines.push(format!(
            "{WARNING}compression.{table}: the budget cannot be met: up to {least} bytes go to headers and to tensors whose codec \
             has no step or density to choose{named}; a budget of {enough} is enough"
        ));
    }
    if estimate.exceeds_floats() {
        let bits = (estimate.asked - estimate.aside) as f64 * 8.0 / estimate.values as f64;
        lines.push(format!(
            "{WARNING}compression.{table}: the budget has {bits:.1} bits for each value, and a float32 has 32: give fewer, or send \
             exact values with preset = \"fedavg-fp32\""
        ));
    }
    lines
}

fn allotted(table: &str, estimate: &BudgetEstimate) -> String {
    let BudgetEstimate {
        budget,
        values,
        aside,
        asked,
        sharing: (_, shared),
        bits_left,
        ..
    } = estimate;
    let mut text = match budget {
        Budget::Bytes(_) | Budget::Run(_) => format!("compression.{table}: a frame takes at most {asked} bytes"),
        Budget::Bandit(_) => {
            let bytes = asked - aside;
            format!(
                "compression.{table}: a frame takes \"{budget}\" for each of {values} values, at most {bytes} bytes"
            )
        }
        Budget::Bits(_) | Budget::Adaptive { .. } => {
            let bytes = asked - aside;
            let bits = bytes as f64 * 8.0 / *values as f64;
            let mut text =
                format!("compression.{table}: {bits:.2} bits for each of {values} values are {bytes} bytes a frame");
            if *aside > 0 {
                let _ = write!(text, ", and up to {aside} bytes more for buffers and counters");
            }
            text
        }
    };
    if *shared > 0 {
        let _ = write!(text, ", of which the headers leave {bits_left:.2} bits for each value");
    }
    if let Some(error) = budget.error() {
        let _ = write!(
            text,
            "; a frame takes more where its relative error would exceed {error}"
        );
        if error.rises() {
            text += " (first rounds may cost the most, so a short run costs more a round; a constant `error` costs it less)";
        }
    }
    text
}

/// The tensors for which next to nothing is left, in words.
fn starved(estimate: &BudgetEstimate, layout: &Layout) -> String {
    let (tensors, _) = &estimate.sharing;
    let names: Vec<&str> = tensors.iter().map(|&at| layout.tensors()[at].name.as_str()).collect();
    match names.as_slice() {
        [] => String::new(),
        [names @ .., last] if names.len() < 4 => {
            let and = if names.is_empty() { "" } else { " and " };
            format!(", and next to nothing is left for {}{and}{last}", names.join(", "))
        }
        [first, second, third, rest @ ..] => {
            format!(
                ", and next to nothing is left for {first}, {second}, {third} and {} more tensors",
                rest.len()
            )
        }
        [..] => String::new(),
    }
}
