//! The decoder behind `transformer` and `lora`: blocks of causal attention and feed-forward layers.

use candle_core::{Device, Result, Tensor, bail};
use candle_nn::init::{ONE, ZERO};
use candle_nn::{Init, VarBuilder};
use serde::Deserialize;

use super::init::normal;
use super::model::Model;
use super::projection::Projection;
use crate::ops::{self, Angles, Heads, Tape};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Style {
    /// Layer norm, learned positions, GELU (Radford et al. 2019).
    Gpt2,
    /// RMS norm, rotary positions, gated SiLU (Touvron et al. 2023). Qwen2 is this with biases of queries, keys and values.
    Llama,
}

/// Everything that determines the tensors of a decoder.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) style: Style,
    pub(super) vocabulary: usize,
    /// Longest text, in tokens.
    pub(super) positions: usize,
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    /// Heads of keys and values.
    pub(super) key_heads: usize,
    /// Values of a head.
    pub(super) head: usize,
    /// Units of the feed-forward layer.
    pub(super) feed_forward: usize,
    /// The output layer's weights are the embedding's.
    pub(super) tied: bool,
    /// Queries, keys and values have a bias, in the style of Llama.
    pub(super) query_bias: bool,
    pub(super) eps: f32,
    /// Frequencies of rotary positions, `[head / 2]`.
    pub(super) frequencies: Vec<f64>,
    pub(super) dropout: f32,
}

/// Where a decoder's tensors come from.
pub(super) trait Tensors {
    fn tensor(&mut self, name: &str, shape: &[usize], init: Init) -> Result<Tensor>;

    /// The linear layer `name`; its weight is `[outputs, inputs]`, or `[inputs, outputs]` if `inputs_first`.
    fn projection(&mut self, name: &str, layer: LayerShape) -> Result<Projection> {
        self.plain(name, layer)
    }

    fn plain(&mut self, name: &str, layer: LayerShape) -> Result<Projection> {
        let LayerShape { inputs, outputs, .. } = layer;
        let shape = if layer.inputs_first {
            [inputs, outputs]
        } else {
            [outputs, inputs]
        };
        let weight = self.tensor(&format!("{name}.weight"), &shape, normal(layer.deviation))?;
        let bias = layer
            .bias
            .then(|| self.tensor(&format!("{name}.bias"), &[outputs], ZERO));
        Ok(Projection::new(weight, bias.transpose()?, layer.inputs_first))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LayerShape {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) bias: bool,
    pub(super) inputs_first: bool,
    /// Standard deviation of the first weights.
    pub(super) deviation: f64,
}

impl Tensors for VarBuilder<'_> {
    fn tensor(&mut self, name: &str, shape: &[usize], init: Init) -> Result<Tensor> {
        self.get_with_hints(shape, name, init)
    }
}

/// Standard deviation of first weights (Radford et al. 2019).
const DEVIATION: f64 = 0.02;

#[derive(Debug)]
pub(super) struct Decoder {
    shape: Shape,
    embedding: Tensor,
    /// Learned positions, in the style of GPT-2.
    positions: Option<Tensor>,
    angles: Option<Angles>,
    blocks: Vec<Block>,
    norm: Norm,
    output: Projection,
}

impl Decoder {
    pub(super) fn new(shape: Shape, tensors: &mut dyn Tensors) -> Result<Self> {
        let table = [shape.vocabulary, shape.width];
        let init = normal(DEVIATION);
        let (embedding, positions, angles) = match shape.style {
            Style::Gpt2 => (
                tensors.tensor("transformer.wte.weight", &table, init)?,
                Some(tensors.tensor("transformer.wpe.weight", &[shape.positions, shape.width], init)?),
                None,
            ),
            Style::Llama => (
                tensors.tensor("model.embed_tokens.weight", &table, init)?,
                None,
                Some(Angles::new(shape.positions, &shape.frequencies)),
            ),
        };
        let blocks = (0..shape.layers)
            .map(|at| Block::new(&shape, at, tensors))
            .collect::<Result<_>>()?;
        let norm = Norm::new(&shape, shape.style.name("transformer.ln_f", "model.norm"), tensors)?;
        let output = if shape.tied {
            embedding.clone()
        } else {
            tensors.tensor("lm_head.weight", &table, init)?
        };
        Ok(Self {
            shape,
            embedding,
            positions,
            angles,
            blocks,
            norm,
            output: Projection::new(output, None, false),
        })
    }

    /// What the output layer takes. Shapes: `x: [batch, tokens]` of `u32`; returns `[batch * tokens, width]`.
    fn states(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let (batch, len) = x.dims2()?;
        if len > self.shape.positions {
            bail!(
                "a text of {len} tokens for a model of {} positions",
                self.shape.positions
            );
        }
        let place = Place {
            shape: &self.shape,
            angles: self.angles.as_ref(),
            batch,
            len,
        };
        let mut h = ops::embedding(tape, x, &self.embedding)?;
        if let Some(positions) = &self.positions {
            let order: Vec<u32> = (0..batch).flat_map(|_| 0..len as u32).collect();
            let order = Tensor::from_vec(order, batch * len, &Device::Cpu)?;
            let positions = ops::embedding(tape, &order, positions)?;
            h = ops::add(tape, &h, &positions, false)?;
        }
        h = ops::dropout(tape, &h, self.shape.dropout)?;
        for block in &self.blocks {
            h = block.forward(tape, &h, place)?;
        }
        self.norm.forward(tape, &h, self.shape.eps)
    }
}

impl Model for Decoder {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let h = self.states(tape, x)?;
        self.output.forward(tape, &h)
    }

    fn cross_entropy(&self, tape: &mut Tape, x: &Tensor, labels: &[u32]) -> Result<Tensor> {
        let h = self.states(tape, x)?;
        self.output.cross_entropy(tape, &h, labels)
    }
}

/// What all blocks share in a forward pass.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    shape: &'a Shape,
    angles: Option<&'a Angles>,
    batch: usize,
    len: usize,
}

impl Style {
    /// The name of a tensor in this style.
    fn name(self, gpt2: &'static str, llama: &'static str) -> &'static str {
        match self {
            Self::Gpt2 => gpt2,
            Self::Llama => llama,
        }
    }
}

#[derive(Debug)]
struct Block {
    attention_norm: Norm,
    queries: Queries,
    attention_out: Projection,
    feed_norm: Norm,
    feed: FeedForward,
}

#[derive(Debug)]
enum Queries {
    Packed(Projection),
    Separate([Projection; 3]),
}

#[derive(Debug)]
enum FeedForward {
    Gelu([Projection; 2]),
    Gated {
        gate: Projection,
        up: Projection,
        down: Projection,
    },
}

impl Block {
    fn new(shape: &Shape, at: usize, tensors: &mut dyn Tensors) -> Result<Self> {
        let prefix = match shape.style {
            Style::Gpt2 => format!("transformer.h.{at}"),
            Style::Llama => format!("model.layers.{at}"),
        };
        let gpt2 = shape.style == Style::Gpt2;
        let name = |gpt2, llama| format!("{prefix}.{}", shape.style.name(gpt2, llama));
        let width = shape.width;
        let wide = shape.heads * shape.head;
        let narrow = shape.key_heads * shape.head;
        let units = shape.feed_forward;
        // What is added to the residual stream starts smaller in the style of GPT-2, as there are 2 such layers a block.
        let residual = if gpt2 {
            DEVIATION / (2.0 * shape.layers as f64).sqrt()
        } else {
            DEVIATION
        };
        let layer = |inputs, outputs, bias, deviation| LayerShape {
            inputs,
            outputs,
            bias,
            inputs_first: gpt2,
            deviation,
        };
        let attention_norm = Norm::new(shape, &name("ln_1", "input_layernorm"), tensors)?;
        let (queries, feed);
        if gpt2 {
            let packed = layer(width, 3 * wide, true, DEVIATION);
            queries = Queries::Packed(tensors.projection(&name("attn.c_attn", ""), packed)?);
        } else {
            let mut one = |part: &str, outputs| {
                let layer = layer(width, outputs, shape.query_bias, DEVIATION);
                tensors.projection(&format!("{prefix}.self_attn.{part}_proj"), layer)
            };
            queries = Queries::Separate([one("q", wide)?, one("k", narrow)?, one("v", narrow)?]);
        }
        let out = layer(wide, width, gpt2, residual);
        let attention_out = tensors.projection(&name("attn.c_proj", "self_attn.o_proj"), out)?;
        let feed_norm = Norm::new(shape, &name("ln_2", "post_attention_layernorm"), tensors)?;
        let mut one = |part: &str, inputs, outputs, deviation| {
            tensors.projection(&format!("{prefix}.mlp.{part}"), layer(inputs, outputs, gpt2, deviation))
        };
        if gpt2 {
            feed = FeedForward::Gelu([
                one("c_fc", width, units, DEVIATION)?,
                one("c_proj", units, width, residual)?,
            ]);
        } else {
            feed = FeedForward::Gated {
                gate: one("gate_proj", width, units, DEVIATION)?,
                up: one("up_proj", width, units, DEVIATION)?,
                down: one("down_proj", units, width, residual)?,
            };
        }
        Ok(Self {
            attention_norm,
            queries,
            attention_out,
            feed_norm,
            feed,
        })
    }

    fn forward(&self, tape: &mut Tape, x: &Tensor, place: Place<'_>) -> Result<Tensor> {
        let eps = place.shape.eps;
        let dropout = place.shape.dropout;
        let h = self.attention_norm.forward(tape, x, eps)?;
        let h = self.queries.attend(tape, &h, place)?;
        let h = self.attention_out.forward(tape, &h)?;
        let h = ops::dropout(tape, &h, dropout)?;
        let x = ops::add(tape, x, &h, false)?;
        let h = self.feed_norm.forward(tape, &x, eps)?;
        let h = self.feed.forward(tape, &h)?;
        let h = ops::dropout(tape, &h, dropout)?;
        ops::add(tape, &x, &h, false)
    }
}

impl Queries {
    fn attend(&self, tape: &mut Tape, x: &Tensor, place: Place<'_>) -> Result<Tensor> {
        let heads = Heads {
            batch: place.batch,
            len: place.len,
            heads: place.shape.heads,
            groups: place.shape.key_heads,
            dim: place.shape.head,
        };
        match self {
            Self::Packed(layer) => {
                let packed = layer.forward(tape, x)?;
                ops::attention_packed(tape, &packed, heads)
            }
            Self::Separate([q, k, v]) => {
                let mut q = q.forward(tape, x)?;
                let mut k = k.forward(tape, x)?;
                let v = v.forward(tape, x)?;
                if let Some(angles) = place.angles {
                    q = ops::rotary(tape, &q, angles, place.len)?;
                    k = ops::rotary(tape, &k, angles, place.len)?;
                }
                ops::attention(tape, &q, &k, &v, heads)
            }
        }
    }
}

impl FeedForward {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Gelu([up, down]) => {
                let h = up.forward(tape, x)?;
                let h = ops::gelu(tape, &h)?;
                down.forward(tape, &h)
            }
            Self::Gated { gate, up, down } => {
                let gate = gate.forward(tape, x)?;
                let up = up.forward(tape, x)?;
                let h = ops::silu_gate(tape, &gate, &up)?;
                down.forward(tape, &h)
            }
        }
    }
}

/// Layer norm in the style of GPT-2, RMS norm, which has no bias, in that of Llama.
#[derive(Debug)]
struct Norm {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Norm {
    fn new(shape: &Shape, name: &str, tensors: &mut dyn Tensors) -> Result<Self> {
        let bias = shape.style == Style::Gpt2;
        let mut tensor = |part: &str, init| tensors.tensor(&format!("{name}.{part}"), &[shape.width], init);
        Ok(Self {
            weight: tensor("weight", ONE)?,
            bias: bias.then(|| tensor("bias", ZERO)).transpose()?,
        })
    }

    fn forward(&self, tape: &mut Tape, x: &Tensor, eps: f32) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => ops::layer_norm(tape, x, &self.weight, bias, eps),
            None => ops::rms_norm(tape, x, &self.weight, eps),
        }
    }
}
