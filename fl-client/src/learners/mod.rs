//! The built-in models, each trained by the same local SGD.
//!
//! A model is a struct of layers with a `forward`; adding one means a file for it, a variant of `model::Model`
//! and a name in [`NAMES`]. Nothing here knows rounds, compression or the network.

mod classifier;
mod cnn;
mod device;
mod har;
mod init;
mod layers;
mod lenet;
mod mlp;
mod model;
mod params;

use std::sync::Arc;

use anyhow::Context as _;
use fl_compress::Layout;

pub use classifier::Classifier;
pub use device::DeviceChoice;
pub use model::NAMES;

use crate::Learner;
use crate::data::{ClientData, Input};

/// Builds the learner called `name` for `data`, whose shape and classes shape the model. Its weights are zero until
/// they are loaded.
///
/// # Errors
/// If there is no such name (the error lists those there are), the model does not suit the data's shape, there is
/// nothing to train on, or the device cannot be used.
pub fn build(name: &str, device: DeviceChoice, data: ClientData) -> anyhow::Result<Box<dyn Learner>> {
    Ok(Box::new(Classifier::new(name, device, data)?))
}

/// What the model called `name` is fed when no data says otherwise.
///
/// # Errors
/// If there is no such name.
pub fn default_input(name: &str) -> anyhow::Result<Input> {
    model::default_input(name)
}

/// Layout and seeded first weights of the model called `name` for its default input. The same on every machine.
///
/// # Errors
/// If there is no such name.
pub fn initial_weights(name: &str, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
    initial_weights_for(name, default_input(name)?, seed)
}

/// As [`initial_weights`], for a given input.
///
/// # Errors
/// If there is no such name or the model does not suit the input.
pub fn initial_weights_for(name: &str, input: Input, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
    let mut params = params::Params::new(&candle_core::Device::Cpu);
    model::Model::new(name, input, &mut params).with_context(|| format!("model `{name}` for {input:?}"))?;
    let (layout, _) = params.finish()?;
    let weights = init::fill(&layout, seed);
    Ok((Arc::new(layout), weights))
}
