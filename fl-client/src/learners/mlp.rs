//! `mlp`: one hidden layer of 200, on any input.

use candle_core::{Result, Tensor};

use super::info::{DIGITS, LearnerInfo, Model};
use super::layers::{Linear, flat};
use super::params::Params;
use crate::data::Input;
use crate::ops::Tape;

pub(super) const LEARNER: LearnerInfo = LearnerInfo {
    name: "mlp",
    about: "one hidden layer of 200",
    input: DIGITS,
    model: |input, params| Ok(Box::new(Mlp::new(input, params)?)),
};

const HIDDEN: usize = 200;

/// 784-200-10 on 28x28 images: 159,010 parameters.
#[derive(Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Mlp {
    fn new(input: Input, p: &mut Params) -> Result<Self> {
        let fc1 = Linear::new(p, "fc1", input.len(), HIDDEN)?;
        Ok(Self {
            fc1,
            fc2: Linear::new(p, "fc2", HIDDEN, input.classes)?,
        })
    }
}

impl Model for Mlp {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let x = flat(tape, x)?;
        let x = self.fc1.relu(tape, &x)?;
        self.fc2.forward(tape, &x)
    }
}
