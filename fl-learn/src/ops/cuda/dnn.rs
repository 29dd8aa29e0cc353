//! Convolutions by cuDNN, where its library is found. Each of the three products has one algorithm, which gives the same bits each time
//! and does not depend on free memory (PyTorch's, where it is asked for deterministic ones).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use candle_core::cuda::DeviceId;
use candle_core::cuda_backend::{CudaDType, CudaDevice, CudaStorage, WrapErr as _};
use candle_core::op::BackpropOp;
use candle_core::{DType, Device, Error, Result, Storage, Tensor, bail};
use cudarc::cudnn::{self, Cudnn, CudnnDataType, sys};
use cudarc::driver::{CudaSlice, CudaView, DeviceRepr};
use fl_proto::Precision;
use half::bf16;

use super::launch::extent;
use super::{Product, Products};
use crate::ops::geometry::Geometry;

/// The oldest cuDNN that CUDA 13 has.
const OLDEST: usize = 9_00_00;

const FORWARD: sys::cudnnConvolutionFwdAlgo_t =
    sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
const INPUT_GRAD: sys::cudnnConvolutionBwdDataAlgo_t =
    sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
const WEIGHT_GRAD: sys::cudnnConvolutionBwdFilterAlgo_t =
    sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/// Whether the library is there and new enough. If not, the log says once that convolutions take several times as long.
static PRESENT: LazyLock<bool> = LazyLock::new(|| {
    // SAFETY: looks for the library.
    #[allow(unsafe_code)]
    let is_there = unsafe { sys::is_culib_present() };
    // A library that lacks the function makes the loader panic.
    let version = || std::panic::catch_unwind(cudnn::result::get_version).unwrap_or(0);
    match if is_there { version() } else { 0 } {
        OLDEST.. => return true,
        0 => tracing::warn!("cuDNN is not found: convolutions take several times as long (docs/guide/cuda.md)"),
        old => tracing::warn!(
            version = old,
            "cuDNN is older than 9: convolutions take several times as long"
        ),
    }
    false
});

/// Extents of a convolution, which determine its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Extents {
    x: [usize; 4],
    w: [usize; 4],
    y: [usize; 4],
    pad: [usize; 2],
    stride: usize,
}

impl Extents {
    fn of(g: &Geometry) -> Self {
        Self {
            x: [g.batch, g.channels, g.input[0], g.input[1]],
            w: [g.filters, g.channels, g.kernel[0], g.kernel[1]],
            y: [g.batch, g.filters, g.output[0], g.output[1]],
            pad: g.window.pad,
            stride: g.window.stride,
        }
    }
}

/// Bytes that the three products work in.
type Plan = [usize; 3];

/// A handle, which one thread may use at a time.
struct Handle(DeviceId, Arc<Cudnn>);

// SAFETY: only `Convolution::with_parts` uses a handle, and holds the mutex as long.
#[allow(unsafe_code)]
unsafe impl Send for Handle {}

/// Handles live as long as the process, as devices do.
static HANDLES: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

type Plans = HashMap<(DeviceId, Extents, Products), Option<Plan>>;

/// `None`: cuDNN cannot.
static PLANS: LazyLock<Mutex<Plans>> = LazyLock::new(Mutex::default);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A convolution on a GPU. Shapes: `x: [batch, channels, rows, columns]`, `w: [filters, channels, kernel rows, kernel columns]`, `y:
/// [batch, filters, rows, columns]`, all of one type.
#[derive(Debug, Clone)]
pub(in super::super) struct Convolution {
    device: CudaDevice,
    extents: Extents,
    products: Products,
    plan: Plan,
}

impl Convolution {
    /// Of operands of `products`. `None` if `x` is not on a GPU, cuDNN is not there, or it cannot compute this.
    pub(in super::super) fn new(x: &Tensor, g: &Geometry, products: Products) -> Result<Option<Self>> {
        let device = match x.device() {
            #[cfg(test)]
            Device::Cpu => super::tests::gpu().unwrap_or(&Device::Cpu),
            device => device,
        };
        let Device::Cuda(device) = device else {
            return Ok(None);
        };
        if !*PRESENT {
            return Ok(None);
        }
        let mut new = Self {
            device: device.clone(),
            extents: Extents::of(g),
            products,
            plan: [0; 3],
        };
        let key = (device.id(), new.extents, products);
        let known = locked(&PLANS).get(&key).copied();
        let plan = match (known, products.dtype()) {
            (Some(known), _) => known,
            (None, DType::BF16) => new.planned::<bf16>()?,
            (None, _) => new.planned::<f32>()?,
        };
        if known.is_none() {
            locked(&PLANS).insert(key, plan);
        }
        Ok(plan.map(|plan| {
            new.plan = plan;
            new
        }))
    }

    fn planned<T: Number>(&self) -> Result<Option<Plan>> {
        self.with_parts(|Parts { conv, x, w, y }: Parts<T>| {
            let (conv, x, w, y) = (&conv, &x, &w, &y);
            let forward = cudnn::ConvForward { conv, x, w, y }.get_workspace_size(FORWARD);
            let input = cudnn::ConvBackwardData { conv, dx: x, w, dy: y }.get_workspace_size(INPUT_GRAD);
            let weight = cudnn::ConvBackwardFilter { conv, x, dw: w, dy: y }.get_workspace_size(WEIGHT_GRAD);
            match (forward, input, weight) {
                (Ok(forward), Ok(input), Ok(weight)) => Ok(Some([forward, input, weight])),
                (forward, input, weight) => {
                    let extents = &self.extents;
                    tracing::warn!(
                        ?extents,
                        ?forward,
                        ?input,
                        ?weight,
                        "cuDNN cannot compute a convolution"
                    );
                    Ok(None)
                }
            }
        })
    }

    /// One of the three products, of tensors of the plan's type.
    pub(in super::super) fn product(&self, which: Product, tensors: [&Tensor; 2]) -> Result<Tensor> {
        #[cfg(test)]
        if tensors[0].device().is_cpu() {
            let gpu = Device::Cuda(self.device.clone());
            let there = [tensors[0].to_device(&gpu)?, tensors[1].to_device(&gpu)?];
            return self.product(which, there.each_ref())?.to_device(&Device::Cpu);
        }
        match tensors[0].dtype() {
            DType::BF16 => self.product_of(which, tensors, (bf16::ONE, bf16::ZERO)),
            _ => self.product_of(which, tensors, (1.0f32, 0.0)),
        }
    }

    #[allow(unsafe_code)]
    fn product_of<T: Number>(&self, which: Product, tensors: [&Tensor; 2], numbers: (T, T)) -> Result<Tensor> {
        let Extents {
            x: xs, w: ws, y: ys, ..
        } = self.extents;
        self.with_parts(|Parts { conv, x, w, y }: Parts<T>| {
            let (conv, x, w, y) = (&conv, &x, &w, &y);
            // SAFETY of all three: `fill` gives slices of the descriptors' types and lengths.
            match which {
                Product::Forward => self.fill(which, tensors, [xs, ws], ys, |work, [a, b], out| unsafe {
                    cudnn::ConvForward { conv, x, w, y }.launch(FORWARD, Some(work), numbers, a, b, out)
                }),
                Product::InputGrad => self.fill(which, tensors, [ws, ys], xs, |work, [a, b], out| unsafe {
                    let op = cudnn::ConvBackwardData { conv, dx: x, w, dy: y };
                    op.launch(INPUT_GRAD, Some(work), numbers, out, a, b)
                }),
                Product::WeightGrad => self.fill(which, tensors, [xs, ys], ws, |work, [a, b], out| unsafe {
                    let op = cudnn::ConvBackwardFilter { conv, x, dw: w, dy: y };
                    op.launch(WEIGHT_GRAD, Some(work), numbers, a, out, b)
                }),
            }
        })
    }

    /// Calls `f` with the descriptors, while no other thread uses the handle.
    fn with_parts<T: Number, R>(&self, f: impl FnOnce(Parts<T>) -> Result<R>) -> Result<R> {
        let (stream, id) = (self.device.cuda_stream(), self.device.id());
        stream.context().bind_to_thread().w()?;
        let mut handles = locked(&HANDLES);
        let known = handles.iter().find(|Handle(device, _)| *device == id);
        let handle = match known {
            Some(Handle(_, handle)) => handle.clone(),
            None => {
                let new = Cudnn::new(stream).map_err(Error::wrap)?;
                handles.push(Handle(id, new.clone()));
                new
            }
        };
        f(self.parts(&handle)?)
    }

    fn parts<T: Number>(&self, handle: &Arc<Cudnn>) -> Result<Parts<T>> {
        let ints = |extents: [usize; 4]| -> Result<[i32; 4]> {
            let [a, b, c, d] = extents.map(|count| extent("a convolution", count));
            Ok([a?, b?, c?, d?])
        };
        let (format, mode) = (
            sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
            sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
        );
        let [pad_y, pad_x, stride, _] = ints([self.extents.pad[0], self.extents.pad[1], self.extents.stride, 0])?;
        // Sums are of `f32` for both types.
        let mut conv = handle
            .create_conv2d::<f32>([pad_y, pad_x], [stride; 2], [1, 1], mode)
            .map_err(Error::wrap)?;
        let math = match self.products.0 {
            // Without tensor cores: their products of `f32` have 10 bits, which is TF32.
            Precision::F32 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
            Precision::Tf32 => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
            Precision::Bf16 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        };
        conv.set_math_type(math).map_err(Error::wrap)?;
        Ok(Parts {
            conv,
            x: handle
                .create_4d_tensor(format, ints(self.extents.x)?)
                .map_err(Error::wrap)?,
            w: handle
                .create_4d_filter(format, ints(self.extents.w)?)
                .map_err(Error::wrap)?,
            y: handle
                .create_4d_tensor(format, ints(self.extents.y)?)
                .map_err(Error::wrap)?,
        })
    }

    /// A new tensor of `shape`, filled by `launch` from two others of the shapes `expected`.
    fn fill<T: Number>(
        &self,
        which: Product,
        tensors: [&Tensor; 2],
        expected: [[usize; 4]; 2],
        shape: [usize; 4],
        launch: impl FnOnce(
            &mut CudaSlice<u8>,
            [&CudaView<'_, T>; 2],
            &mut CudaSlice<T>,
        ) -> std::result::Result<(), cudnn::CudnnError>,
    ) -> Result<Tensor> {
        let [a, b] = [tensors[0].contiguous()?, tensors[1].contiguous()?];
        if [a.dims(), b.dims()] != [&expected[0][..], &expected[1][..]] {
            bail!(
                "a convolution of {:?} and {:?} in place of {expected:?}",
                a.dims(),
                b.dims()
            );
        }
        // SAFETY: the convolution writes every value, and reads of the working memory only what it wrote.
        #[allow(unsafe_code)]
        let (mut out, mut work) = unsafe {
            let out = self.device.alloc::<T>(shape.iter().product())?;
            (out, self.device.alloc::<u8>(self.plan[which as usize].max(1))?)
        };
        let ((a, a_layout), (b, b_layout)) = (a.storage_and_layout(), b.storage_and_layout());
        let (Storage::Cuda(a), Storage::Cuda(b)) = (&*a, &*b) else {
            bail!("a convolution of tensors on different devices")
        };
        let a = a.as_cuda_slice::<T>()?.slice(a_layout.start_offset()..);
        let b = b.as_cuda_slice::<T>()?.slice(b_layout.start_offset()..);
        launch(&mut work, [&a, &b], &mut out).map_err(Error::wrap)?;
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(out, self.device.clone()));
        Ok(Tensor::from_storage(storage, &shape, BackpropOp::none(), false))
    }
}

/// The descriptors of a convolution.
struct Parts<T> {
    conv: cudnn::ConvDescriptor<f32>,
    x: cudnn::TensorDescriptor<T>,
    w: cudnn::FilterDescriptor<T>,
    y: cudnn::TensorDescriptor<T>,
}

trait Number: CudaDType + CudnnDataType + DeviceRepr {}
impl Number for f32 {}
impl Number for bf16 {}
