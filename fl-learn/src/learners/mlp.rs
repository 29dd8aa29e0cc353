//! `mlp`: hidden layers with relu, on any input but texts.

use candle_core::{Result, bail};
use candle_nn::VarBuilder;
use serde::Deserialize;

use super::info::{DIGITS, LearnerInfo};
use super::layers::FeedForward;
use super::settings::{self, CheckResult, Settings, within};
use crate::data::{Input, Target};

pub(super) const LEARNER: LearnerInfo = LearnerInfo::on_tape::<MlpSettings>(
    "mlp",
    "hidden layers, by default one of 200",
    Some(DIGITS),
    |input, table, params| Ok(Box::new(model(input, &settings::of(table)?, params)?)),
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MlpSettings {
    /// Units of each hidden layer.
    hidden: Vec<usize>,
}

impl Default for MlpSettings {
    fn default() -> Self {
        Self { hidden: vec![200] }
    }
}

impl Settings for MlpSettings {
    fn check(&self) -> CheckResult {
        within("hidden", self.hidden.len(), 0, 16).map_err(|why| format!("the number of layers in {why}"))?;
        self.hidden
            .iter()
            .try_for_each(|&units| within("hidden", units, 1, 1 << 20))
    }
}

/// Layers `fc1`, `fc2` and so on. 784-200-10 on 28x28 images: 159,010 parameters.
fn model(input: Input, settings: &MlpSettings, p: &VarBuilder<'_>) -> Result<FeedForward> {
    if input.target == Target::NextToken {
        bail!("expects numbers or images, not texts; use `lstm` or `transformer`");
    }
    let outputs = [settings.hidden.as_slice(), &[input.classes]].concat();
    FeedForward::new(p, Vec::new(), input.len(), &outputs)
}
