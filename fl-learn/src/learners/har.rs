//! `har`: a small one-dimensional convolutional network for windows of sensor signals.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::info::LearnerInfo;
use super::layers::{Conv, FeedForward, left};
use super::settings::NoSettings;
use crate::data::Input;

pub(super) const LEARNER: LearnerInfo = LearnerInfo::on_tape::<NoSettings>(
    "har",
    "one-dimensional convolutions over sensor signals",
    Some(Input::of_classes([6, 1, 128], 12)),
    |input, _, params| Ok(Box::new(model(input, params)?)),
);

/// Convolutions of 24 and 32 filters over 5 samples, each with a max-pool of 2, then 32 and the classes: 34,740
/// parameters on windows of 6 channels and 128 samples with 12 activities.
fn model(input: Input, p: &VarBuilder<'_>) -> Result<FeedForward> {
    let [channels, height, samples] = input.shape;
    if height != 1 {
        candle_core::bail!(
            "expects signals of height 1, not {:?}; if the data set has the key `shape`, set it to [channels, 1, samples]",
            input.shape
        );
    }
    let inputs = 32 * left(left(samples, 5, 2)?, 5, 2)?;
    let convolutions = vec![
        Conv::signal(p, "conv1", [24, channels, 5], 1, 2)?,
        Conv::signal(p, "conv2", [32, 24, 5], 1, 2)?,
    ];
    FeedForward::new(p, convolutions, inputs, &[32, input.classes])
}
