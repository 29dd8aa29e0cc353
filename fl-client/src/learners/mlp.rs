//! `mlp`: one hidden layer of 200, on any input.

use candle_core::{Result, Tensor};

use super::layers::{Linear, flat};
use super::params::Params;
use crate::data::Input;
use crate::ops::Tape;

const HIDDEN: usize = 200;

/// 784-200-10 on 28x28 images: 159,010 parameters.
#[derive(Debug)]
pub(super) struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Mlp {
    pub(super) fn new(input: Input, p: &mut Params) -> Result<Self> {
        let fc1 = Linear::new(p, "fc1", input.len(), HIDDEN)?;
        Ok(Self {
            fc1,
            fc2: Linear::new(p, "fc2", HIDDEN, input.classes)?,
        })
    }

    pub(super) fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let x = flat(tape, x)?;
        let x = self.fc1.relu(tape, &x)?;
        self.fc2.forward(tape, &x)
    }
}
