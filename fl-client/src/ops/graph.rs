//! Operations of candle's graph, as on a GPU, whose way back is our own.
//!
//! candle derives the way back from the way there. Where that is slow (the input of a convolution, the steps of an LSTM) or wrong (max-pool, of
//! which it divides the gradient by the size of the window), the operation is computed outside of the graph and put into it with its
//! gradient.

use candle_core::backend::BackendStorage as _;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, CustomOp2, D, Layout, Result, Shape, Storage, Tensor, bail};

/// `out` as a function of `x` in candle's graph. `out` must have been computed outside of it, from `x.detach()`; `backward` gives the
/// gradient of `x` for that of `out`.
///
/// # Errors
/// If the device is out of memory.
pub(super) fn function_of(
    x: &Tensor,
    out: Tensor,
    backward: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    match x.track_op() {
        true => x.apply_op1(Function { out, backward }),
        false => Ok(out),
    }
}

/// As [`function_of`], of two tensors. `backward` gives the gradients of those that are wanted.
///
/// # Errors
/// If the device is out of memory.
pub(super) fn function_of_two(
    a: &Tensor,
    b: &Tensor,
    out: Tensor,
    backward: impl Fn(&Tensor, [bool; 2]) -> Result<[Option<Tensor>; 2]> + Send + Sync + 'static,
) -> Result<Tensor> {
    let wanted = [a.track_op(), b.track_op()];
    match wanted.contains(&true) {
        true => a.apply_op2(
            b,
            Function {
                out,
                backward: move |grad: &Tensor| backward(grad, wanted),
            },
        ),
        false => Ok(out),
    }
}

/// `(x - mean) / sqrt(variance + eps)` of each row, in candle's graph; without the mean if `centered` is false. Shapes: `x: [rows, dim]`.
///
/// # Errors
/// If the device is out of memory.
pub(super) fn normalized(x: &Tensor, eps: f32, centered: bool) -> Result<Tensor> {
    let mean = |x: &Tensor| x.mean_keepdim(D::Minus1);
    let detached = x.detach();
    let apart = match centered {
        true => detached.broadcast_sub(&mean(&detached)?)?,
        false => detached,
    };
    let deviation = (mean(&apart.sqr()?)? + f64::from(eps))?.sqrt()?;
    let out = apart.broadcast_div(&deviation)?;
    let normal = out.clone();
    function_of(x, out, move |grad| {
        let along = normal.broadcast_mul(&mean(&(grad * &normal)?)?)?;
        let across = (grad - along)?;
        let across = match centered {
            true => across.broadcast_sub(&mean(grad)?)?,
            false => across,
        };
        across.broadcast_div(&deviation)
    })
}

/// The softmax of each row, over the last dimension, in candle's graph.
///
/// # Errors
/// If the device is out of memory.
pub(super) fn softmax(x: &Tensor) -> Result<Tensor> {
    let detached = x.detach();
    let powers = detached.broadcast_sub(&detached.max_keepdim(D::Minus1)?)?.exp()?;
    let out = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
    let shares = out.clone();
    function_of(x, out, move |grad| {
        let along = (grad * &shares)?;
        &along - shares.broadcast_mul(&along.sum_keepdim(D::Minus1)?)?
    })
}

struct Function<B> {
    out: Tensor,
    backward: B,
}

impl<B> Function<B> {
    fn cpu(&self) -> Result<(CpuStorage, Shape)> {
        let (storage, layout) = self.out.storage_and_layout();
        match &*storage {
            Storage::Cpu(storage) if whole(layout) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => bail!("the result of an operation on the CPU must be there, and no part of another"),
        }
    }

    fn cuda(&self) -> Result<(CudaStorage, Shape)> {
        let (storage, layout) = self.out.storage_and_layout();
        match &*storage {
            Storage::Cuda(storage) if whole(layout) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => bail!("the result of an operation on a GPU must be there, and no part of another"),
        }
    }
}

/// Whether a copy of the storage is a copy of the tensor.
fn whole(layout: &Layout) -> bool {
    layout.is_contiguous() && layout.start_offset() == 0
}

impl<B: Fn(&Tensor) -> Result<Tensor>> CustomOp1 for Function<B> {
    fn name(&self) -> &'static str {
        "function"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        self.cuda()
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        (self.backward)(grad).map(Some)
    }
}

impl<B: Fn(&Tensor) -> Result<[Option<Tensor>; 2]>> CustomOp2 for Function<B> {
    fn name(&self) -> &'static str {
        "function of two"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        self.cuda()
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        (self.backward)(grad).map(|[a, b]| (a, b))
    }
}
