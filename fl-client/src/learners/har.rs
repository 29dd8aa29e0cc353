//! `har`: a small one-dimensional convolutional network for windows of sensor signals.

use candle_core::{Result, Tensor};

use super::info::{LearnerInfo, Model};
use super::layers::{Conv, Linear, flat, left};
use super::params::Params;
use super::settings::{self, NoSettings};
use crate::data::Input;
use crate::ops::Tape;

pub(super) const LEARNER: LearnerInfo = LearnerInfo {
    name: "har",
    about: "one-dimensional convolutions over sensor signals",
    input: Input::of_classes([6, 1, 128], 12),
    check: settings::check::<NoSettings>,
    paths: &[],
    model: |input, _, params| Ok(Box::new(Har::new(input, params)?)),
};

/// Convolutions of 24 and 32 filters over 5 samples, each with a max-pool of 2, then 32 and the classes: 34,740
/// parameters on windows of 6 channels and 128 samples with 12 activities.
#[derive(Debug)]
struct Har {
    conv1: Conv,
    conv2: Conv,
    fc1: Linear,
    fc2: Linear,
}

impl Har {
    fn new(input: Input, p: &mut Params) -> Result<Self> {
        let [channels, height, samples] = input.shape;
        if height != 1 {
            candle_core::bail!(
                "expects signals of height 1, not {:?}; if the data set has the key `shape`, set it to [channels, 1, samples]",
                input.shape
            );
        }
        let inputs = 32 * left(left(samples, 5, 2)?, 5, 2)?;
        Ok(Self {
            conv1: Conv::signal(p, "conv1", [24, channels, 5], 1, 2)?,
            conv2: Conv::signal(p, "conv2", [32, 24, 5], 1, 2)?,
            fc1: Linear::new(p, "fc1", inputs, 32)?,
            fc2: Linear::new(p, "fc2", 32, input.classes)?,
        })
    }
}

impl Model for Har {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(tape, x)?;
        let x = self.conv2.forward(tape, &x)?;
        let x = flat(tape, &x)?;
        let x = self.fc1.relu(tape, &x)?;
        self.fc2.forward(tape, &x)
    }
}
