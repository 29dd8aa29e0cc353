//! `cnn`: the convolutional network of the federated-averaging paper (McMahan et al. 2017).

use candle_core::{Result, Tensor};

use super::info::{DIGITS, LearnerInfo, Model};
use super::layers::{Conv, Linear, flat, left};
use super::params::Params;
use super::settings::{self, NoSettings};
use crate::data::Input;
use crate::ops::Tape;

pub(super) const LEARNER: LearnerInfo = LearnerInfo {
    name: "cnn",
    about: "the convolutional network of McMahan et al. 2017",
    input: DIGITS,
    check: settings::check::<NoSettings>,
    paths: &[],
    model: |input, _, params| Ok(Box::new(Cnn::new(input, params)?)),
};

/// Two 5x5 convolutions of 32 and 64 filters without padding, each with a 2x2 max-pool, then 512 and the classes:
/// 582,026 parameters on 28x28 images.
#[derive(Debug)]
struct Cnn {
    conv1: Conv,
    conv2: Conv,
    fc1: Linear,
    fc2: Linear,
}

impl Cnn {
    fn new(input: Input, p: &mut Params) -> Result<Self> {
        let [channels, height, width] = input.shape;
        let after = |len| left(left(len, 5, 2)?, 5, 2);
        let inputs = 64 * after(height)? * after(width)?;
        Ok(Self {
            conv1: Conv::image(p, "conv1", [32, channels, 5, 5], 0, 2)?,
            conv2: Conv::image(p, "conv2", [64, 32, 5, 5], 0, 2)?,
            fc1: Linear::new(p, "fc1", inputs, 512)?,
            fc2: Linear::new(p, "fc2", 512, input.classes)?,
        })
    }
}

impl Model for Cnn {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(tape, x)?;
        let x = self.conv2.forward(tape, &x)?;
        let x = flat(tape, &x)?;
        let x = self.fc1.relu(tape, &x)?;
        self.fc2.forward(tape, &x)
    }
}
