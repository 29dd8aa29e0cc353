//! A convolutional net of candle-nn's modules, with batch norm and dropout, as a learner of the whole client.
//!
//! ```text
//! cargo run -p fl-learn --example conv_net -- init --learner conv-net --input 1x28x28 --classes 10 -o init.safetensors
//! ```

use std::process::ExitCode;

use fl_learn::data::Input;
use fl_learn::nn::{self, BatchNorm, Conv2d, Conv2dConfig, Linear, Module as _, ModuleT, VarBuilder};
use fl_learn::{Dropout, Registry, Result, Tensor, max_pool2d};

/// Two convolutions, each with a batch norm, relu and a 2x2 max-pool, then a linear layer.
struct ConvNet {
    blocks: Vec<(Conv2d, BatchNorm)>,
    dropout: Dropout,
    head: Linear,
}

impl ConvNet {
    fn new(vb: &VarBuilder<'_>, input: Input, channels: usize) -> Result<Self> {
        let [inputs, rows, columns] = input.shape;
        let config = Conv2dConfig {
            padding: 1,
            ..Conv2dConfig::default()
        };
        let block = |at: usize, from: usize, to: usize| {
            let vb = vb.pp(format!("blocks.{at}"));
            let conv = nn::conv2d_no_bias(from, to, 3, config, vb.pp("conv"))?;
            Result::Ok((conv, nn::batch_norm(to, 1e-5, vb.pp("norm"))?))
        };
        Ok(Self {
            blocks: vec![block(0, inputs, channels)?, block(1, channels, 2 * channels)?],
            dropout: Dropout::new(0.1),
            head: nn::linear(2 * channels * (rows / 4) * (columns / 4), input.classes, vb.pp("head"))?,
        })
    }
}

impl ModuleT for ConvNet {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let mut x = x.clone();
        for (conv, norm) in &self.blocks {
            x = norm.forward_t(&conv.forward(&x)?, train)?.relu()?;
            x = max_pool2d(&x, 2, 2)?;
        }
        let x = self.dropout.forward_t(&x.flatten_from(1)?, train)?;
        self.head.forward(&x)
    }
}

/// The learners of this crate, and this one.
pub fn registry() -> Registry {
    Registry::built_in().with("conv-net", |vb, input, settings| {
        Ok(Box::new(ConvNet::new(&vb, input, settings.get("channels", 8)?)?))
    })
}

fn main() -> ExitCode {
    fl_learn::main(registry())
}
