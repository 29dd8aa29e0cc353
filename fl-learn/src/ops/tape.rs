//! The way back through a model: the backward function of each op applied, and the gradients that follow.
//!
//! candle's own `backward` fills every gradient with zeros and then adds to it, in separate threads; on a CPU that
//! costs small models more than their arithmetic. This tape passes each gradient on unchanged, and computes none that
//! leads only to frozen tensors or to the data.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use candle_core::{DType, Result, Tensor, TensorId, Var, bail};

use super::native::on_cpu;
use super::slices;
use crate::data::Rng;

/// Adds to the gradients of an op's inputs, given the gradient of its output, row-major.
type Backward = Box<dyn FnOnce(Vec<f32>, &mut Gradients) -> Result<()> + Send>;

/// The same of an op that is a composition, of the shape of its output.
type ComposedBackward = Box<dyn FnOnce(Tensor, &mut ComposedGradients) -> Result<()> + Send>;

/// The ops of one forward pass in their order. The default tape is that of an evaluation: nothing is recorded and
/// dropout is off. On the CPU they are our own loops; on other devices, compositions of candle's operations.
#[derive(Default)]
pub struct Tape {
    nodes: Vec<(TensorId, Backward)>,
    /// As `nodes`, on other devices.
    composed_nodes: Vec<(TensorId, ComposedBackward)>,
    /// Tensors whose gradient is needed: the variables, and all that is computed from them.
    wanted: HashSet<TensorId>,
    training: Option<RefCell<Rng>>,
    /// New values of buffers.
    buffers: Vec<(Var, Tensor)>,
    /// Whether those are the batch's own statistics, whatever the momentum.
    measures: bool,
    /// What compositions of attention add to scores, the same in all layers.
    pub(super) mask: Option<Tensor>,
    /// Type of the operands of products in compositions, if not `f32`.
    narrow: Option<DType>,
    /// Compositions on the CPU too, so that tests can compare the two.
    composed: bool,
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape")
            .field("nodes", &(self.nodes.len() + self.composed_nodes.len()))
            .finish()
    }
}

impl Tape {
    /// The tape of a training step of `vars`. `seed` determines all that dropout draws.
    pub fn training(vars: &[Var], seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            composed_nodes: Vec::new(),
            wanted: vars.iter().map(|var| var.as_tensor().id()).collect(),
            training: Some(RefCell::new(Rng::new(seed))),
            buffers: Vec::new(),
            measures: false,
            mask: None,
            narrow: None,
            composed: false,
        }
    }

    /// The same tape, on which compositions convert the operands of their products to `dtype` (Micikevicius et al. 2018,
    /// without a copy of the weights in `dtype` and without loss scaling, which bfloat16 does not need). Our own loops
    /// compute in `f32`.
    pub(crate) fn with_products_in(self, dtype: DType) -> Self {
        Self {
            narrow: Some(dtype).filter(|dtype| *dtype != DType::F32),
            ..self
        }
    }

    /// The tape of a training step that changes nothing and measures the statistics of its batch.
    pub(crate) fn measuring() -> Self {
        Self {
            measures: true,
            ..Self::training(&[], 0)
        }
    }

    /// The statistics that a forward pass on a measuring tape has found, in its order.
    pub(crate) fn measured(self) -> Vec<(Var, Tensor)> {
        self.buffers
    }

    /// Share of the batch's own statistics in the new running ones.
    pub(super) fn momentum(&self, of_training: f32) -> f32 {
        if self.measures { 1.0 } else { of_training }
    }

    /// A tape on which every operation is what it is on a GPU: a composition of candle's operations.
    #[cfg(test)]
    pub(crate) fn composed(vars: &[Var], seed: u64) -> Self {
        Self {
            composed: true,
            ..Self::training(vars, seed)
        }
    }

    /// Whether an operation on `x` is one of our own loops.
    #[inline]
    pub(crate) fn is_native(&self, x: &Tensor) -> bool {
        on_cpu(x) && !(cfg!(test) && self.composed)
    }

    /// The type in which operands of products of `x` are wanted.
    pub(super) fn operand_type(&self, x: &Tensor) -> DType {
        match self.is_native(x) {
            true => DType::F32,
            false => self.narrow.unwrap_or(DType::F32),
        }
    }

    /// Whether this is a training step: dropout drops, and batch norm uses the batch's own statistics.
    pub fn is_training(&self) -> bool {
        self.training.is_some()
    }

    /// Whether the gradient of `x` is needed.
    pub(super) fn wants(&self, x: &Tensor) -> bool {
        self.wanted.contains(&x.id())
    }

    /// A seed for an op that draws, different for each call.
    pub(crate) fn draw(&self) -> Option<u64> {
        self.training.as_ref().map(|rng| rng.borrow_mut().bits())
    }

    /// Notes that our own loops computed `out` from `inputs`, and returns it. `back` takes the gradient of `out`, the values of the
    /// inputs and whether the gradient of each is wanted, and returns these.
    pub(super) fn looped<const N: usize>(
        &mut self,
        inputs: [&Tensor; N],
        out: Tensor,
        back: impl FnOnce(Vec<f32>, [&[f32]; N], [bool; N]) -> Result<[Option<Vec<f32>>; N]> + Send + 'static,
    ) -> Tensor {
        let wanted = inputs.map(|x| self.wants(x));
        if wanted.contains(&true) {
            let inputs = inputs.map(Tensor::clone);
            self.wanted.insert(out.id());
            let backward = move |grad, grads: &mut Gradients| {
                let values = inputs.iter().map(slices::read).collect::<Result<Vec<_>>>()?;
                let found = back(grad, std::array::from_fn(|at| &*values[at]), wanted)?;
                drop(values);
                for ((x, grad), wanted) in inputs.iter().zip(found).zip(wanted) {
                    grads.add_some(x.id(), grad.filter(|_| wanted));
                }
                Ok(())
            };
            self.nodes.push((out.id(), Box::new(backward)));
        }
        out
    }

    /// As [`Tape::looped`], of a composition of candle's operations. `out` and all that `back` holds must be detached: candle's own
    /// graph is not used.
    pub(super) fn composition<const N: usize>(
        &mut self,
        inputs: [&Tensor; N],
        out: Tensor,
        back: impl FnOnce(Tensor, [bool; N]) -> Result<[Option<Tensor>; N]> + Send + 'static,
    ) -> Tensor {
        let wanted = inputs.map(|x| self.wants(x));
        if wanted.contains(&true) {
            // The tensors themselves would keep their values.
            let ids = inputs.map(Tensor::id);
            self.wanted.insert(out.id());
            let backward = move |grad, grads: &mut ComposedGradients| {
                for ((to, grad), wanted) in ids.into_iter().zip(back(grad, wanted)?).zip(wanted) {
                    grads.add_some(to, grad.filter(|_| wanted))?;
                }
                Ok(())
            };
            self.composed_nodes.push((out.id(), Box::new(backward)));
        }
        out
    }

    /// Sets a buffer at the end of a backward pass. A pass that fails because the device is out of memory is repeated with
    /// fewer examples, and must not move running statistics twice.
    pub(super) fn set_after(&mut self, buffer: &Var, value: Tensor) {
        self.buffers.push((buffer.clone(), value));
    }

    /// `x` in another shape of as many values.
    ///
    /// # Errors
    /// If the number of values differs.
    pub fn reshape(&mut self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        if !self.is_native(x) {
            let (out, shape) = (x.detach().reshape(shape)?, x.shape().clone());
            return Ok(self.composition([x], out, move |grad, _| Ok([Some(grad.reshape(shape)?)])));
        }
        Ok(self.looped([x], x.reshape(shape)?, |grad, _, _| Ok([Some(grad)])))
    }

    /// Gradient of the scalar `loss` with respect to each of `vars`, in their order. Sets the buffers of the model.
    ///
    /// # Errors
    /// If `loss` does not depend on a variable, or the device fails.
    pub fn backward(mut self, loss: &Tensor, vars: &[Var]) -> Result<Vec<Tensor>> {
        let buffers = std::mem::take(&mut self.buffers);
        let grads = self.gradients(loss, vars)?;
        for (buffer, value) in buffers {
            buffer.set(&value)?;
        }
        Ok(grads)
    }

    fn gradients(self, loss: &Tensor, vars: &[Var]) -> Result<Vec<Tensor>> {
        if !self.is_native(loss) {
            let mut grads = ComposedGradients(HashMap::from([(loss.id(), loss.ones_like()?)]));
            for (out, backward) in self.composed_nodes.into_iter().rev() {
                if let Some(grad) = grads.0.remove(&out) {
                    backward(grad, &mut grads)?;
                }
            }
            return vars
                .iter()
                .map(|var| found(grads.0.remove(&var.as_tensor().id()))?.contiguous())
                .collect();
        }
        let mut grads = Gradients(HashMap::from([(loss.id(), vec![1.0])]));
        for (out, backward) in self.nodes.into_iter().rev() {
            if let Some(grad) = grads.0.remove(&out) {
                backward(grad, &mut grads)?;
            }
        }
        vars.iter()
            .map(|var| {
                let grad = found(grads.0.remove(&var.as_tensor().id()))?;
                Tensor::from_vec(grad, var.shape(), var.device())
            })
            .collect()
    }
}

/// Gradients by tensor. Looked up by id only, never walked: their order is of no consequence.
#[derive(Debug)]
struct Gradients(HashMap<TensorId, Vec<f32>>);

impl Gradients {
    /// Adds to the gradient of `to`, if there is one. Shapes: alike.
    fn add_some(&mut self, to: TensorId, grad: Option<Vec<f32>>) {
        let Some(grad) = grad else { return };
        match self.0.get_mut(&to) {
            Some(sum) => slices::add(sum, &grad),
            None => drop(self.0.insert(to, grad)),
        }
    }
}

/// As [`Gradients`], of compositions.
#[derive(Debug)]
struct ComposedGradients(HashMap<TensorId, Tensor>);

impl ComposedGradients {
    /// As [`Gradients::add_some`].
    fn add_some(&mut self, to: TensorId, grad: Option<Tensor>) -> Result<()> {
        let Some(grad) = grad else { return Ok(()) };
        let sum = match self.0.remove(&to) {
            Some(sum) => (sum + grad)?,
            None => grad,
        };
        self.0.insert(to, sum);
        Ok(())
    }
}

fn found<T>(grad: Option<T>) -> Result<T> {
    let Some(grad) = grad else {
        bail!("the loss does not depend on one of the variables")
    };
    Ok(grad)
}
