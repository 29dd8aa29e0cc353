//! `lenet`: LeNet-5 (LeCun et al. 1998) with relu and max-pooling.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::info::{DIGITS, LearnerInfo};
use super::layers::{Conv, FeedForward, left};
use super::settings::NoSettings;
use crate::data::Input;

pub(super) const LEARNER: LearnerInfo =
    LearnerInfo::on_tape::<NoSettings>("lenet", "LeNet-5", Some(DIGITS), |input, _, params| {
        Ok(Box::new(model(input, params)?))
    });

/// Two 5x5 convolutions of 6 and 16 filters, each with a 2x2 max-pool, then 120, 84 and the classes. Images below
/// 32x32 are padded by 2, as in the paper: 61,706 parameters on 28x28 images.
fn model(input: Input, p: &VarBuilder<'_>) -> Result<FeedForward> {
    let [channels, height, width] = input.shape;
    let pad = if height < 32 && width < 32 { 2 } else { 0 };
    let after = |len: usize| left(left(len + 2 * pad, 5, 2)?, 5, 2);
    let inputs = 16 * after(height)? * after(width)?;
    let convolutions = vec![
        Conv::image(p, "conv1", [6, channels, 5, 5], pad, 2)?,
        Conv::image(p, "conv2", [16, 6, 5, 5], 0, 2)?,
    ];
    FeedForward::new(p, convolutions, inputs, &[120, 84, input.classes])
}
