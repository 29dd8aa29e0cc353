//! `lstm`: a language model of recurrent layers, with the tensor names of PyTorch's word language model.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_nn::init::ZERO;
use serde::Deserialize;

use super::info::{LearnerInfo, TEXT, expect_texts};
use super::init::{fan_in, uniform};
use super::model::Model;
use super::settings::{self, CheckResult, Settings, probability, within};
use crate::data::Input;
use crate::ops::{self, LstmWeights, Tape};

pub(super) const LEARNER: LearnerInfo = LearnerInfo::on_tape::<LstmSettings>(
    "lstm",
    "two recurrent layers of 200 on texts",
    Some(TEXT),
    |input, table, params| Ok(Box::new(Lstm::new(input, &settings::of(table)?, params)?)),
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LstmSettings {
    /// Recurrent layers.
    layers: usize,
    /// Units of a layer.
    hidden: usize,
    /// Values of a token's embedding; by default as many as units.
    embedding: Option<usize>,
    /// Probability of dropping a value after the embedding and after each layer (Zaremba et al. 2014).
    dropout: f32,
    /// The output layer's weights are the embedding's (Press and Wolf 2017).
    tied: bool,
}

impl Default for LstmSettings {
    fn default() -> Self {
        Self {
            layers: 2,
            hidden: 200,
            embedding: None,
            dropout: 0.0,
            tied: false,
        }
    }
}

impl LstmSettings {
    fn embedding(&self) -> usize {
        self.embedding.unwrap_or(self.hidden)
    }
}

impl Settings for LstmSettings {
    fn check(&self) -> CheckResult {
        within("layers", self.layers, 1, 64)?;
        within("hidden", self.hidden, 1, 1 << 16)?;
        within("embedding", self.embedding(), 1, 1 << 16)?;
        probability("dropout", self.dropout)?;
        match self.tied && self.embedding() != self.hidden {
            true => Err(format!(
                "`tied` needs an `embedding` of {} values, as many as units of a layer",
                self.hidden
            )),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Lstm {
    embedding: Tensor,
    layers: Vec<[Tensor; 4]>,
    /// Weight and bias of the output layer.
    decoder: [Tensor; 2],
    dropout: f32,
}

impl Lstm {
    fn new(input: Input, settings: &LstmSettings, p: &VarBuilder<'_>) -> Result<Self> {
        expect_texts(input)?;
        let vocabulary = input.classes;
        let hidden = settings.hidden;
        let near_zero = uniform(0.1);
        let embedding = p.get_with_hints((vocabulary, settings.embedding()), "encoder.weight", near_zero)?;
        let mut layers = Vec::with_capacity(settings.layers);
        for at in 0..settings.layers {
            let inputs = if at == 0 { settings.embedding() } else { hidden };
            let tensor =
                |name: &str, shape: &[usize]| p.get_with_hints(shape, &format!("rnn.{name}_l{at}"), fan_in(hidden));
            layers.push([
                tensor("weight_ih", &[4 * hidden, inputs])?,
                tensor("weight_hh", &[4 * hidden, hidden])?,
                tensor("bias_ih", &[4 * hidden])?,
                tensor("bias_hh", &[4 * hidden])?,
            ]);
        }
        let weight = if settings.tied {
            embedding.clone()
        } else {
            p.get_with_hints((vocabulary, hidden), "decoder.weight", near_zero)?
        };
        Ok(Self {
            embedding,
            layers,
            decoder: [weight, p.get_with_hints(vocabulary, "decoder.bias", ZERO)?],
            dropout: settings.dropout,
        })
    }
}

impl Lstm {
    /// States of the last layer. Shapes: `x: [batch, tokens]` of `u32`; returns `[batch * tokens, hidden]`.
    fn states(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let (batch, tokens) = x.dims2()?;
        let x = ops::embedding(tape, x, &self.embedding)?;
        let mut x = ops::dropout(tape, &x, self.dropout)?;
        for [input, hidden, input_bias, hidden_bias] in &self.layers {
            let width = x.elem_count() / (batch * tokens).max(1);
            let sequence = tape.reshape(&x, &[batch, tokens, width])?;
            let weights = LstmWeights {
                input,
                hidden,
                input_bias,
                hidden_bias,
            };
            let states = ops::lstm(tape, &sequence, weights)?;
            let states = tape.reshape(&states, &[batch * tokens, hidden.dim(1)?])?;
            x = ops::dropout(tape, &states, self.dropout)?;
        }
        Ok(x)
    }
}

impl Model for Lstm {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let states = self.states(tape, x)?;
        let [weight, bias] = &self.decoder;
        ops::linear(tape, &states, weight, Some(bias), false)
    }

    fn cross_entropy(&self, tape: &mut Tape, x: &Tensor, labels: &[u32]) -> Result<Tensor> {
        let states = self.states(tape, x)?;
        let [weight, bias] = &self.decoder;
        ops::linear_cross_entropy(tape, &states, weight, Some(bias), labels)
    }
}
