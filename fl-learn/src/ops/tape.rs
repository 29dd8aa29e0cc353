//! The way back through a model: the backward function of each op applied, and the gradients that follow.
//!
//! candle's own `backward` fills every gradient with zeros and then adds to it, in separate threads; on a CPU that
//! costs small models more than their arithmetic. This tape passes each gradient on unchanged, and computes none that
//! leads only to frozen tensors or to the data.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use candle_core::{Result, Shape, Tensor, TensorId, Var, bail};

use fl_proto::Precision;

use super::cuda::{Kernel, Products};
use super::native::on_cpu;
use super::relu::relu_grad;
use super::slices;
use crate::data::Rng;

/// Adds to the gradients of an op's inputs, given the gradient of its output, row-major.
type Backward = Box<dyn FnOnce(Vec<f32>, &mut Gradients) -> Result<()> + Send>;

/// The same of an op on a GPU, of the shape of its output.
type GpuBackward = Box<dyn FnOnce(Tensor, &mut GpuGradients) -> Result<()> + Send>;

/// The ops of one forward pass in their order. The default tape is that of an evaluation: nothing is recorded and
/// dropout is off. On the CPU they are our own loops; on a GPU, our own kernels and candle's operations.
#[derive(Default)]
pub(crate) struct Tape {
    nodes: Vec<(TensorId, Backward)>,
    /// As `nodes`, on a GPU.
    gpu_nodes: Vec<(TensorId, GpuBackward)>,
    /// Tensors whose gradient is needed: the variables, and all that is computed from them.
    wanted: HashSet<TensorId>,
    training: Option<RefCell<Rng>>,
    /// New values of buffers.
    buffers: Vec<(Var, Tensor)>,
    /// Whether those are the batch's own statistics, whatever the momentum.
    measures: bool,
    precision: Precision,
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape")
            .field("nodes", &(self.nodes.len() + self.gpu_nodes.len()))
            .finish()
    }
}

impl Tape {
    /// The tape of a training step of `vars`. `seed` determines all that dropout draws.
    pub(crate) fn training(vars: &[Var], seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            gpu_nodes: Vec::new(),
            wanted: vars.iter().map(|var| var.as_tensor().id()).collect(),
            training: Some(RefCell::new(Rng::new(seed))),
            buffers: Vec::new(),
            measures: false,
            precision: Precision::F32,
        }
    }

    /// The same tape, with products of `precision` on a GPU (Micikevicius et al. 2018, without a copy of the weights in bfloat16 and
    /// without loss scaling, which it does not need). Our own loops compute in `f32`.
    pub(crate) fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
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

    #[inline]
    pub(crate) fn is_native(&self, x: &Tensor) -> bool {
        on_cpu(x)
    }

    pub(super) fn products(&self) -> Products {
        Products(self.precision)
    }

    /// Whether this is a training step: dropout drops, and batch norm uses the batch's own statistics.
    pub(crate) fn is_training(&self) -> bool {
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

    /// One operation: its result for `inputs`, which are all on one device, and the way back of its gradients. On a CPU `loops` take
    /// the row-major values of the inputs; elsewhere `on_gpu` takes the inputs outside candle's own graph, and launches kernels or candle's
    /// operations of them. Both are told of which inputs a gradient is wanted, and return the result with its backward function. That
    /// takes the gradient of the result (and, of loops, the values of the inputs) and returns the gradient of each input; one that is
    /// not wanted may be anything.
    pub(super) fn apply<const N: usize, Loops, Back, OnGpu, GpuBack>(
        &mut self,
        inputs: [&Tensor; N],
        shape: impl Into<Shape>,
        loops: Loops,
        on_gpu: OnGpu,
    ) -> Result<Tensor>
    where
        Loops: FnOnce([&[f32]; N], [bool; N]) -> (Vec<f32>, Back),
        Back: FnOnce(Vec<f32>, [&[f32]; N]) -> [Option<Vec<f32>>; N] + Send + 'static,
        OnGpu: FnOnce([Tensor; N], [bool; N]) -> Result<(Tensor, GpuBack)>,
        GpuBack: FnOnce(Tensor) -> Result<[Option<Tensor>; N]> + Send + 'static,
    {
        if self.is_native(inputs[0]) {
            self.looped(false, inputs, shape, loops)
        } else {
            self.on_gpu(false, inputs, on_gpu)
        }
    }

    /// The half of [`Tape::apply`] that runs on the CPU. `with_relu`: `loops` apply relu too, while a value is at hand; its way back is
    /// here.
    pub(super) fn looped<const N: usize, Back>(
        &mut self,
        with_relu: bool,
        inputs: [&Tensor; N],
        shape: impl Into<Shape>,
        loops: impl FnOnce([&[f32]; N], [bool; N]) -> (Vec<f32>, Back),
    ) -> Result<Tensor>
    where
        Back: FnOnce(Vec<f32>, [&[f32]; N]) -> [Option<Vec<f32>>; N] + Send + 'static,
    {
        let wanted = inputs.map(|x| self.wants(x));
        let ids = inputs.map(Tensor::id);
        let inputs = inputs.map(Tensor::clone);
        let (out, back) = with_all(&inputs, |values| loops(values, wanted))?;
        let out = slices::tensor(out, shape)?;
        if wanted.contains(&true) {
            self.wanted.insert(out.id());
            let y = with_relu.then(|| out.clone());
            self.nodes.push((
                out.id(),
                Box::new(move |mut grad, grads| {
                    if let Some(y) = y {
                        relu_grad(&mut grad, &slices::read(&y)?);
                    }
                    let found = with_all(&inputs, |values| back(grad, values))?;
                    for ((to, grad), wanted) in ids.into_iter().zip(found).zip(wanted) {
                        grads.add_some(to, grad.filter(|_| wanted));
                    }
                    Ok(())
                }),
            ));
        }
        Ok(out)
    }

    /// As [`Tape::looped`], for a GPU.
    pub(super) fn on_gpu<const N: usize, Back>(
        &mut self,
        with_relu: bool,
        inputs: [&Tensor; N],
        on_gpu: impl FnOnce([Tensor; N], [bool; N]) -> Result<(Tensor, Back)>,
    ) -> Result<Tensor>
    where
        Back: FnOnce(Tensor) -> Result<[Option<Tensor>; N]> + Send + 'static,
    {
        let wanted = inputs.map(|x| self.wants(x));
        let ids = inputs.map(Tensor::id);
        let (out, back) = on_gpu(inputs.map(Tensor::detach), wanted)?;
        if wanted.contains(&true) {
            self.wanted.insert(out.id());
            let y = with_relu.then(|| out.clone());
            self.gpu_nodes.push((
                out.id(),
                Box::new(move |mut grad, grads| {
                    if let Some(y) = y {
                        let len = grad.elem_count();
                        grad = Kernel::of_each("relu_back", len)
                            .reads([&grad, &y])
                            .ints(&[len])
                            .fills(y.shape())
                            .launch_one()?;
                    }
                    for ((to, grad), wanted) in ids.into_iter().zip(back(grad)?).zip(wanted) {
                        grads.add_some(to, grad.filter(|_| wanted))?;
                    }
                    Ok(())
                }),
            ));
        }
        Ok(out)
    }

    /// Sets a buffer at the end of a backward pass. A pass that fails because the device is out of memory is repeated with
    /// fewer examples, and must not move running statistics twice.
    pub(super) fn set_after(&mut self, buffer: &Var, value: Tensor) {
        self.buffers.push((buffer.clone(), value));
    }

    /// `x` in another shape of as many values.
    pub(crate) fn reshape(&mut self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let id = x.id();
        let before = x.shape().clone();
        if !self.is_native(x) {
            return self.on_gpu(false, [x], |[x], _| {
                Ok((x.reshape(shape)?, move |grad: Tensor| Ok([Some(grad.reshape(before)?)])))
            });
        }
        let out = x.reshape(shape)?;
        if self.wants(x) {
            self.wanted.insert(out.id());
            self.nodes.push((
                out.id(),
                Box::new(move |grad, grads| {
                    grads.add_some(id, Some(grad));
                    Ok(())
                }),
            ));
        }
        Ok(out)
    }

    /// Gradient of the scalar `loss` with respect to each of `vars`, in their order. Sets the buffers of the model.
    pub(crate) fn backward(mut self, loss: &Tensor, vars: &[Var]) -> Result<Vec<Tensor>> {
        let buffers = std::mem::take(&mut self.buffers);
        let grads = self.gradients(loss, vars)?;
        for (buffer, value) in buffers {
            buffer.set(&value)?;
        }
        Ok(grads)
    }

    fn gradients(self, loss: &Tensor, vars: &[Var]) -> Result<Vec<Tensor>> {
        if !self.is_native(loss) {
            let mut grads = GpuGradients(HashMap::from([(loss.id(), loss.ones_like()?)]));
            for (out, backward) in self.gpu_nodes.into_iter().rev() {
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
    fn add_some(&mut self, to: TensorId, grad: Option<Vec<f32>>) {
        let Some(grad) = grad else { return };
        match self.0.get_mut(&to) {
            Some(sum) => slices::add(sum, &grad),
            None => drop(self.0.insert(to, grad)),
        }
    }
}

/// As [`Gradients`], on a GPU.
#[derive(Debug)]
struct GpuGradients(HashMap<TensorId, Tensor>);

impl GpuGradients {
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

/// Calls `f` with the values of all `tensors`.
fn with_all<const N: usize, T>(tensors: &[Tensor; N], f: impl FnOnce([&[f32]; N]) -> T) -> Result<T> {
    let values = tensors.each_ref().map(slices::read);
    if let Some(error) = values.iter().find_map(|values| values.as_ref().err()) {
        bail!("{error}")
    }
    Ok(f(values.each_ref().map(|values| values.as_deref().unwrap_or(&[]))))
}

fn found<T>(grad: Option<T>) -> Result<T> {
    let Some(grad) = grad else {
        bail!("the loss does not depend on one of the variables")
    };
    Ok(grad)
}
