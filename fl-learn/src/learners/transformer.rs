//! `transformer`: a decoder of causal attention, in the style of GPT-2 or of Llama, with the tensor names of Hugging Face.

use candle_core::Result;
use candle_nn::VarBuilder;
use serde::Deserialize;

use super::decoder::{Decoder, Shape, Style};
use super::info::{LearnerInfo, TEXT, expect_texts};
use super::settings::{self, CheckResult, Settings, probability, within};
use crate::data::Input;

pub(super) const LEARNER: LearnerInfo = LearnerInfo::on_tape::<TransformerSettings>(
    "transformer",
    "four layers of causal attention of width 128 on texts",
    Some(TEXT),
    |input, table, params| Ok(Box::new(decoder(input, &settings::of(table)?, params)?)),
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TransformerSettings {
    /// The kind of block.
    style: Style,
    /// Blocks.
    layers: usize,
    /// Values of a token between blocks.
    width: usize,
    /// Heads of the attention.
    heads: usize,
    /// Heads of keys and values; by default `heads`.
    key_heads: Option<usize>,
    /// Units of the feed-forward layer; by default 4 `width`, in the style of Llama 8/3 `width`.
    feed_forward: Option<usize>,
    /// Probability of dropping a value after the embedding, the attention and the feed-forward layer.
    dropout: f32,
    /// The output layer's weights are the embedding's; by default in the style of GPT-2 only.
    tied: Option<bool>,
}

impl Default for TransformerSettings {
    fn default() -> Self {
        Self {
            style: Style::Gpt2,
            layers: 4,
            width: 128,
            heads: 4,
            key_heads: None,
            feed_forward: None,
            dropout: 0.0,
            tied: None,
        }
    }
}

impl TransformerSettings {
    fn key_heads(&self) -> usize {
        self.key_heads.unwrap_or(self.heads)
    }

    fn feed_forward(&self) -> usize {
        self.feed_forward.unwrap_or(match self.style {
            Style::Llama => 8 * self.width / 3,
            Style::Gpt2 => 4 * self.width,
        })
    }
}

impl Settings for TransformerSettings {
    fn check(&self) -> CheckResult {
        within("layers", self.layers, 1, 256)?;
        within("width", self.width, 2, 1 << 16)?;
        within("heads", self.heads, 1, 1 << 10)?;
        within("key_heads", self.key_heads(), 1, self.heads)?;
        within("feed_forward", self.feed_forward(), 1, 1 << 18)?;
        probability("dropout", self.dropout)?;
        let heads = self.heads;
        let key_heads = self.key_heads();
        if !self.width.is_multiple_of(2 * heads) {
            return Err(format!(
                "`width` is {}, but must be a multiple of 2 `heads` = {}",
                self.width,
                2 * heads
            ));
        }
        if !heads.is_multiple_of(key_heads) || (self.style == Style::Gpt2 && key_heads != heads) {
            return Err(format!(
                "`key_heads` is {key_heads}, but must divide `heads` = {heads}, and be the same in the style \"gpt2\""
            ));
        }
        Ok(())
    }
}

fn decoder(input: Input, settings: &TransformerSettings, p: &VarBuilder<'_>) -> Result<Decoder> {
    expect_texts(input)?;
    let shape = Shape {
        style: settings.style,
        vocabulary: input.classes,
        positions: input.shape[2],
        layers: settings.layers,
        width: settings.width,
        heads: settings.heads,
        key_heads: settings.key_heads(),
        head: settings.width / settings.heads,
        feed_forward: settings.feed_forward(),
        tied: settings.tied.unwrap_or(settings.style == Style::Gpt2),
        query_bias: false,
        eps: match settings.style {
            Style::Gpt2 => 1e-5,
            Style::Llama => 1e-6,
        },
        frequencies: crate::ops::frequencies(settings.width / settings.heads, 10_000.0),
        dropout: settings.dropout,
    };
    Decoder::new(shape, &mut p.clone())
}
