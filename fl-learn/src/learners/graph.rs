//! Models of a program's own, made of candle-nn's modules: they run on candle's graph. What such a model needs and candle-nn does not
//! have is here: dropout that a seed determines, and a max-pool with the right gradient.

use std::cell::RefCell;
use std::fmt;

use candle_core::{DType, Device, Error, Result, Tensor, Var, bail};
use candle_nn::{ModuleT, VarBuilder};
use fl_proto::caught;

use super::examples::ModelBatch;
use super::info::{GraphModel, MakeGraph};
use super::model::Model;
use super::settings::GivenSettings;
use crate::data::{Input, Rng, Target};
use crate::ops::{self, Tape};

/// A module, and the shape of what it must return.
pub(super) struct Graph {
    module: Box<dyn ModuleT>,
    input: Input,
    device: Device,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

impl Graph {
    /// What the module predicts, tracked. `seed`: of a training step. Shapes: as [`Model::forward`]; of a text, the module may return
    /// `[batch, tokens, vocabulary]`, too.
    fn predict(&self, x: &Tensor, seed: Option<u64>) -> Result<Tensor> {
        // Token ids come from the CPU.
        let x = &match x.dtype() {
            DType::U32 => ops::upload(x.flatten_all()?.to_vec1::<u32>()?, x.shape(), &self.device)?,
            _ => x.clone(),
        };
        let drawing = Drawing::begin(seed);
        let out = caught(|| self.module.forward_t(x, seed.is_some()));
        let out = out.map_err(|why| Error::msg(format!("the model panicked: {why}")))??;
        drop(drawing);
        let batch = x.dim(0)?;
        let tokens = x.dim(1)?;
        let wanted = match self.input.target {
            Target::NextToken => [batch * tokens, self.input.classes],
            Target::Class | Target::Numbers => [batch, self.input.classes],
        };
        let flat = match (self.input.target, out.dims()) {
            (Target::NextToken, &[first, second, _]) if [first, second] == [batch, tokens] => out.flatten(0, 1)?,
            _ => out,
        };
        if flat.dims() != wanted || flat.dtype() != DType::F32 {
            let dtype = flat.dtype();
            let found = flat.dims();
            let given = x.dims();
            bail!("the model returns {dtype:?} {found:?} for examples of {given:?}; the data needs F32 {wanted:?}");
        }
        Ok(flat)
    }

    /// Where a training pass moves `buffers` from zeros, where a second one begins, and where that moves them.
    fn two_passes(&self, x: &Tensor, buffers: &[Var]) -> Result<[Vec<Vec<f32>>; 3]> {
        let moved = |from: &[Vec<f32>]| -> Result<Vec<Vec<f32>>> {
            for (buffer, from) in buffers.iter().zip(from) {
                buffer.set(&Tensor::from_slice(from, buffer.shape(), buffer.device())?)?;
            }
            self.predict(x, Some(0))?;
            buffers.iter().map(|buffer| values(buffer.as_tensor())).collect()
        };
        let zeros: Vec<Vec<f32>> = buffers.iter().map(|buffer| vec![0.0; buffer.elem_count()]).collect();
        let first = moved(&zeros)?;
        let mut begun = first.clone();
        for a in begun.iter_mut().flatten().filter(|a| **a == 0.0) {
            *a = 1.0;
        }
        let second = moved(&begun)?;
        Ok([first, begun, second])
    }
}

impl<F> MakeGraph for F
where
    F: Fn(VarBuilder<'static>, Input, &GivenSettings<'_>) -> anyhow::Result<Box<dyn ModuleT>> + Send + Sync,
{
    fn make(
        &self,
        vb: VarBuilder<'static>,
        input: Input,
        given: &GivenSettings<'_>,
    ) -> anyhow::Result<Box<dyn GraphModel>> {
        let device = vb.device().clone();
        let module = self(vb, input, given)?;
        Ok(Box::new(Graph { module, input, device }))
    }
}

impl GraphModel for Graph {
    fn as_model(&self) -> &dyn Model {
        self
    }

    /// The loss and its slope are those of every learner; from there, candle's graph leads back.
    fn gradients(
        &self,
        batch: &ModelBatch,
        vars: &[Var],
        buffers: &[Var],
        seed: u64,
    ) -> Result<(Tensor, Vec<Option<Tensor>>)> {
        let before = copies(buffers)?;
        let stepped = self.predict(&batch.x, Some(seed)).and_then(|out| {
            let top = Var::from_tensor(&out.detach().contiguous()?)?;
            let mut tape = Tape::training(std::slice::from_ref(&top), seed);
            let loss = batch.loss(&mut tape, top.as_tensor())?;
            let slope = tape.backward(&loss, std::slice::from_ref(&top))?;
            let mut found = (out * &slope[0])?.sum_all()?.backward()?;
            let grads = vars.iter().map(|var| found.remove(var.as_tensor()));
            let grads = grads.map(|grad| grad.map(|grad| grad.contiguous()).transpose());
            Ok((loss, grads.collect::<Result<_>>()?))
        });
        stepped.inspect_err(|_| {
            // The error of the step is the one to report.
            let _ = set(buffers, &before);
        })
    }

    /// A module moves a running statistic `s` to `a + b s`, and only it knows `b`. From zeros it moves to `a`. A second pass begins with
    /// `a`, so that `b` is as exact for large statistics as for small ones. The batch's own statistic is the `s` that stays what it is.
    fn measured(&self, x: &Tensor, buffers: &[Var]) -> Result<Vec<(Var, Tensor)>> {
        let before = copies(buffers)?;
        let passes = self.two_passes(x, buffers);
        set(buffers, &before)?;
        let [first, begun, second] = passes?;
        let mut measured = Vec::with_capacity(buffers.len());
        for (at, buffer) in buffers.iter().enumerate() {
            let mut own = values(&before[at])?;
            for (place, own) in own.iter_mut().enumerate() {
                let a = first[at][place];
                let s = begun[at][place];
                let b = (second[at][place] - a) / s;
                // With `b` = 1, the module has left it alone.
                if b != 1.0 {
                    *own = a / (1.0 - b);
                }
            }
            measured.push((buffer.clone(), Tensor::from_vec(own, buffer.shape(), buffer.device())?));
        }
        Ok(measured)
    }
}

impl Model for Graph {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        self.predict(x, tape.draw())?.detach().contiguous()
    }
}

fn values(x: &Tensor) -> Result<Vec<f32>> {
    x.flatten_all()?.to_vec1()
}

pub(super) fn copies(vars: &[Var]) -> Result<Vec<Tensor>> {
    vars.iter().map(|var| var.as_detached_tensor().copy()).collect()
}

pub(super) fn set(vars: &[Var], values: &[Tensor]) -> Result<()> {
    vars.iter().zip(values).try_for_each(|(var, value)| var.set(value))
}

/// The likely reasons why some tensors get no gradient. `names`: theirs; not empty.
pub(super) fn without_gradient(names: &[&str]) -> String {
    let shown = names
        .iter()
        .take(4)
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let more = match names.len() {
        0..=4 => String::new(),
        all => format!(" and {} more", all - 4),
    };
    let has = |parts: &[&str]| names.iter().any(|name| parts.iter().any(|part| name.contains(part)));
    let likely = match (has(&["attn", "attention", "query", "q_proj"]), has(&["norm", "ln"])) {
        (_, true) => {
            "a `LayerNorm` or `RmsNorm` of candle-nn, which has no gradient: call `ops::layer_norm_slow`, or `forward_diff` of an RMS norm"
        }
        (true, false) => {
            "`softmax_last_dim`, `rope` or `sdpa` of candle-nn, which have no gradient: call `ops::softmax`, `rope_slow`"
        }
        (false, false) => {
            "`layer_norm`, `rms_norm`, `softmax_last_dim`, `rope` or `sdpa` of candle-nn, which have no gradient, or a `detach`"
        }
    };
    format!(
        "no gradient reaches {shown}{more}: the loss does not depend on them, or on the way is an operation without one; likely {likely}"
    )
}

thread_local! {
    /// What dropout draws from in the training step of this thread.
    static DRAWS: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// A training step whose draws a seed determines.
struct Drawing;

impl Drawing {
    fn begin(seed: Option<u64>) -> Self {
        DRAWS.set(seed.map(Rng::new));
        Self
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        DRAWS.set(None);
    }
}

/// Dropout (Srivastava et al. 2014) that the seed of the step determines, for a candle-nn model: the `Dropout` of candle-nn draws
/// from a generator that nobody can seed.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    probability: f32,
}

impl Dropout {
    /// Sets each value to 0 with this `probability`, in [0, 1), and divides the others by the probability of being kept.
    pub fn new(probability: f32) -> Self {
        Self { probability }
    }
}

impl ModuleT for Dropout {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        if !(0.0..1.0).contains(&self.probability) {
            bail!("a dropout of {}", self.probability);
        }
        if !train || self.probability == 0.0 {
            return Ok(x.clone());
        }
        let Some(seed) = DRAWS.with_borrow_mut(|draws| draws.as_mut().map(Rng::bits)) else {
            bail!("dropout outside of a learner's training step: nothing seeds it");
        };
        let mask = ops::dropout_mask(x.elem_count(), seed, self.probability);
        x * Tensor::from_vec(mask, x.shape(), x.device())?
    }
}

/// The largest value of each window of `size` x `size` every `stride` positions, for a candle-nn model; equal ones share the
/// gradient. (The gradient of candle's own max-pool is divided by the size of the window.) Shapes:
/// `x: [batch, channels, rows, columns]`; returns `[batch, channels, (rows - size) / stride + 1, (columns - size) / stride + 1]`.
///
/// # Errors
/// If no window fits.
pub fn max_pool2d(x: &Tensor, size: usize, stride: usize) -> Result<Tensor> {
    let (_, _, rows, columns) = x.dims4()?;
    if size == 0 || stride == 0 || rows < size || columns < size {
        bail!("a pool of {size} every {stride} of {:?}", x.dims());
    }
    let every = |x: &Tensor, dim: usize, first: usize, len: usize| {
        let places = (0..(len - size) / stride + 1).map(|at| (at * stride + first) as u32);
        x.contiguous()?
            .index_select(&Tensor::from_iter(places, x.device())?, dim)
    };
    let mut largest: Option<Tensor> = None;
    for row in 0..size {
        let band = every(x, 2, row, rows)?;
        for column in 0..size {
            let part = every(&band, 3, column, columns)?;
            largest = Some(match largest {
                Some(largest) => largest.maximum(&part)?,
                None => part,
            });
        }
    }
    largest.map_or_else(|| x.zeros_like(), Ok)
}

#[cfg(test)]
pub(super) mod tests;
