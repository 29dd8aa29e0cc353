//! `lenet`: LeNet-5 (LeCun et al. 1998) with relu and max-pooling.

use candle_core::{Result, Tensor};

use super::info::{DIGITS, LearnerInfo, Model};
use super::layers::{Conv, Linear, flat, left};
use super::params::Params;
use super::settings::{self, NoSettings};
use crate::data::Input;
use crate::ops::Tape;

pub(super) const LEARNER: LearnerInfo = LearnerInfo {
    name: "lenet",
    about: "LeNet-5",
    input: DIGITS,
    check: settings::check::<NoSettings>,
    paths: &[],
    model: |input, _, params| Ok(Box::new(LeNet::new(input, params)?)),
};

/// Two 5x5 convolutions of 6 and 16 filters, each with a 2x2 max-pool, then 120, 84 and the classes. Images below
/// 32x32 are padded by 2, as in the paper: 61,706 parameters on 28x28 images.
#[derive(Debug)]
struct LeNet {
    conv1: Conv,
    conv2: Conv,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl LeNet {
    fn new(input: Input, p: &mut Params) -> Result<Self> {
        let [channels, height, width] = input.shape;
        let pad = if height < 32 && width < 32 { 2 } else { 0 };
        let after = |len: usize| left(left(len + 2 * pad, 5, 2)?, 5, 2);
        let inputs = 16 * after(height)? * after(width)?;
        Ok(Self {
            conv1: Conv::image(p, "conv1", [6, channels, 5, 5], pad, 2)?,
            conv2: Conv::image(p, "conv2", [16, 6, 5, 5], 0, 2)?,
            fc1: Linear::new(p, "fc1", inputs, 120)?,
            fc2: Linear::new(p, "fc2", 120, 84)?,
            fc3: Linear::new(p, "fc3", 84, input.classes)?,
        })
    }
}

impl Model for LeNet {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(tape, x)?;
        let x = self.conv2.forward(tape, &x)?;
        let x = flat(tape, &x)?;
        let x = self.fc1.relu(tape, &x)?;
        let x = self.fc2.relu(tape, &x)?;
        self.fc3.forward(tape, &x)
    }
}
