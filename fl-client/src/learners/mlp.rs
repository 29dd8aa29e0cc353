//! `mlp`: hidden layers with relu, on any input but texts.

use candle_core::{Result, Tensor, bail};
use serde::Deserialize;

use super::info::{DIGITS, LearnerInfo, Model};
use super::layers::{Linear, flat};
use super::params::Params;
use super::settings::{self, Checked, Settings, within};
use crate::data::{Input, Target};
use crate::ops::Tape;

pub(super) const LEARNER: LearnerInfo = LearnerInfo {
    name: "mlp",
    about: "hidden layers, by default one of 200",
    input: DIGITS,
    check: settings::check::<MlpSettings>,
    paths: &[],
    model: |input, table, params| Ok(Box::new(Mlp::new(input, &settings::of(table)?, params)?)),
};

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
    fn check(&self) -> Checked {
        within("hidden", self.hidden.len(), 0, 16).map_err(|why| format!("the number of layers in {why}"))?;
        self.hidden
            .iter()
            .try_for_each(|&units| within("hidden", units, 1, 1 << 20))
    }
}

/// Layers `fc1`, `fc2` and so on. 784-200-10 on 28x28 images: 159,010 parameters.
#[derive(Debug)]
struct Mlp {
    hidden: Vec<Linear>,
    last: Linear,
}

impl Mlp {
    fn new(input: Input, settings: &MlpSettings, p: &mut Params) -> Result<Self> {
        if input.target == Target::NextToken {
            bail!("expects numbers or images, not texts; use `lstm` or `transformer`");
        }
        let mut inputs = input.len();
        let mut layer = |outputs, at: usize| {
            let layer = Linear::new(p, &format!("fc{}", at + 1), inputs, outputs);
            inputs = outputs;
            layer
        };
        let hidden = settings.hidden.iter().enumerate();
        Ok(Self {
            hidden: hidden.map(|(at, &units)| layer(units, at)).collect::<Result<_>>()?,
            last: layer(input.classes, settings.hidden.len())?,
        })
    }
}

impl Model for Mlp {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let mut x = flat(tape, x)?;
        for layer in &self.hidden {
            x = layer.relu(tape, &x)?;
        }
        self.last.forward(tape, &x)
    }
}
