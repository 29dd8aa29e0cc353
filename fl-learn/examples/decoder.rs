//! A small decoder of candle-nn's modules in the style of Llama, whose operations all have gradients, as a learner of the whole client.
//!
//! ```text
//! cargo run -p fl-learn --example decoder -- check client.toml --dry-run 3
//! ```

use std::process::ExitCode;

use fl_learn::candle::{D, Device};
use fl_learn::data::Input;
use fl_learn::nn::{self, Embedding, Linear, Module as _, ModuleT, RmsNorm, VarBuilder, ops, rotary_emb};
use fl_learn::{Registry, Result, Tensor};

const HEADS: usize = 4;

/// Causal attention and a gated feed-forward layer, each behind an RMS norm.
struct Block {
    norms: [RmsNorm; 2],
    qkv: Linear,
    out: Linear,
    gate_up: Linear,
    down: Linear,
}

impl Block {
    fn new(vb: &VarBuilder<'_>, width: usize) -> Result<Self> {
        let norm = |name: &str| nn::rms_norm(width, 1e-6, vb.pp(name));
        let linear = |name: &str, from, to| nn::linear_no_bias(from, to, vb.pp(name));
        Ok(Self {
            norms: [norm("attention_norm")?, norm("feed_forward_norm")?],
            qkv: linear("attention.qkv", width, 3 * width)?,
            out: linear("attention.out", width, width)?,
            gate_up: linear("feed_forward.gate_up", width, 6 * width)?,
            down: linear("feed_forward.down", 3 * width, width)?,
        })
    }

    /// Shapes: `x: [batch, tokens, width]`; `cos` and `sin`: `[tokens, half a head]`; `mask: [tokens, tokens]`.
    fn forward(&self, x: &Tensor, [cos, sin, mask]: [&Tensor; 3]) -> Result<Tensor> {
        let (batch, tokens, width) = x.dims3()?;
        let qkv = self.qkv.forward(&self.norms[0].forward_diff(x)?)?;
        let head = |at: usize| {
            let part = qkv.narrow(D::Minus1, at * width, width)?;
            let split = part.reshape((batch, tokens, HEADS, width / HEADS))?;
            split.transpose(1, 2)?.contiguous()
        };
        let query = rotary_emb::rope_slow(&head(0)?, cos, sin)?;
        let key = rotary_emb::rope_slow(&head(1)?, cos, sin)?;
        let scores = (query.matmul(&key.t()?.contiguous()?)? * ((width / HEADS) as f64).powf(-0.5))?;
        let shares = ops::softmax(&scores.broadcast_add(mask)?, D::Minus1)?;
        let mixed = shares
            .matmul(&head(2)?)?
            .transpose(1, 2)?
            .reshape((batch, tokens, width))?;
        let x = (x + self.out.forward(&mixed)?)?;
        let gate_up = self
            .gate_up
            .forward(&self.norms[1].forward_diff(&x)?)?
            .chunk(2, D::Minus1)?;
        let inner = (gate_up[0].silu()? * &gate_up[1])?;
        x + self.down.forward(&inner)?
    }
}

struct Decoder {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
    half: usize,
}

impl Decoder {
    fn new(vb: &VarBuilder<'_>, input: Input, layers: usize, width: usize) -> Result<Self> {
        let block = |at: usize| Block::new(&vb.pp(format!("layers.{at}")), width);
        Ok(Self {
            embedding: nn::embedding(input.classes, width, vb.pp("embedding"))?,
            blocks: (0..layers).map(block).collect::<Result<_>>()?,
            norm: nn::rms_norm(width, 1e-6, vb.pp("norm"))?,
            head: nn::linear_no_bias(width, input.classes, vb.pp("head"))?,
            half: width / HEADS / 2,
        })
    }

    /// Cosines and sines of the rotary positions, and what is added to scores so that no token sees a later one.
    fn tables(&self, tokens: usize, device: &Device) -> Result<[Tensor; 3]> {
        let rate = |at: usize| 10_000f32.powf(-(at as f32) / self.half as f32);
        let angles: Vec<f32> = (0..tokens)
            .flat_map(|t| (0..self.half).map(move |at| t as f32 * rate(at)))
            .collect();
        let angles = Tensor::from_vec(angles, (tokens, self.half), device)?;
        let later = |from: usize, to: usize| if to > from { f32::NEG_INFINITY } else { 0.0 };
        let mask: Vec<f32> = (0..tokens)
            .flat_map(|from| (0..tokens).map(move |to| later(from, to)))
            .collect();
        Ok([
            angles.cos()?,
            angles.sin()?,
            Tensor::from_vec(mask, (tokens, tokens), device)?,
        ])
    }
}

impl ModuleT for Decoder {
    fn forward_t(&self, tokens: &Tensor, _: bool) -> Result<Tensor> {
        let [cos, sin, mask] = self.tables(tokens.dim(1)?, tokens.device())?;
        let mut x = self.embedding.forward(tokens)?;
        for block in &self.blocks {
            x = block.forward(&x, [&cos, &sin, &mask])?;
        }
        self.head.forward(&self.norm.forward_diff(&x)?)
    }
}

/// The learners of this crate, and this one.
pub fn registry() -> Registry {
    Registry::built_in().with("decoder", |vb, input, settings| {
        let (layers, width) = (settings.get("layers", 2)?, settings.get("width", 64)?);
        Ok(Box::new(Decoder::new(&vb, input, layers, width)?))
    })
}

fn main() -> ExitCode {
    fl_learn::main(registry())
}
