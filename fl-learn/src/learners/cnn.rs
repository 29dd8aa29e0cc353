//! `cnn`: the convolutional network of the federated-averaging paper (McMahan et al. 2017).

use candle_core::Result;
use candle_nn::VarBuilder;

use super::info::{DIGITS, LearnerInfo};
use super::layers::{Conv, FeedForward, left};
use super::settings::NoSettings;
use crate::data::Input;

pub(super) const LEARNER: LearnerInfo = LearnerInfo::on_tape::<NoSettings>(
    "cnn",
    "the convolutional network of McMahan et al. 2017",
    Some(DIGITS),
    |input, _, params| Ok(Box::new(model(input, params)?)),
);

/// Two 5x5 convolutions of 32 and 64 filters without padding, each with a 2x2 max-pool, then 512 and the classes:
/// 582,026 parameters on 28x28 images.
fn model(input: Input, p: &VarBuilder<'_>) -> Result<FeedForward> {
    let [channels, height, width] = input.shape;
    let after = |len| left(left(len, 5, 2)?, 5, 2);
    let inputs = 64 * after(height)? * after(width)?;
    let convolutions = vec![
        Conv::image(p, "conv1", [32, channels, 5, 5], 0, 2)?,
        Conv::image(p, "conv2", [64, 32, 5, 5], 0, 2)?,
    ];
    FeedForward::new(p, convolutions, inputs, &[512, input.classes])
}
