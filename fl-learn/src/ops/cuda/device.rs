//! What candle leaves to its callers on an NVIDIA GPU: one stream a device, memory that stays between steps, and shapes that are
//! uploaded once. Without the feature `cuda` nothing here does anything.

#[cfg(feature = "cuda")]
use candle_core::{
    CudaDevice, CudaStorage, Storage, bail,
    cuda_backend::{
        CudaDType, WrapErr as _,
        cudarc::driver::{DeviceRepr, result, sys},
    },
    op::BackpropOp,
};
use candle_core::{Device, Result, Shape, Tensor};
use fl_proto::Precision;

#[cfg(feature = "cuda")]
use super::{Kernel, Products};

/// A number that [`upload`] takes.
#[cfg(not(feature = "cuda"))]
pub(crate) trait Number: candle_core::WithDType {}
#[cfg(feature = "cuda")]
pub(crate) trait Number: candle_core::WithDType + CudaDType + DeviceRepr {}
impl Number for f32 {}
impl Number for u32 {}

/// The GPU of this number, with a stream of its own for all threads: jobs run on changing threads of a pool.
pub(crate) fn open(ordinal: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(ordinal)?;
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = &device {
        prepare(cuda)?;
        try_out(&device)?;
    }
    Ok(device)
}

/// Whether a product and a kernel are right. A driver that is older than the kernels, or a library without a function, fails here and not
/// in a round.
#[cfg(feature = "cuda")]
fn try_out(device: &Device) -> Result<()> {
    const UNFIT: &str =
        "the driver or a library of CUDA does not suit this program (docs/guide/cuda.md lists what does)";
    match nine(device) {
        Ok(nine) if nine == [9.0] => Ok(()),
        Ok(other) => bail!("{UNFIT}: 2 * 3 * 1.5 is {other:?}"),
        // Others use the GPU.
        Err(why) if why.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY") => Err(why),
        Err(why) => bail!("{UNFIT}: {why}"),
    }
}

/// 2 * 3 by cuBLAS, and half of it more by a kernel.
#[cfg(feature = "cuda")]
fn nine(device: &Device) -> Result<Vec<f32>> {
    let shape = Shape::from((1, 1));
    let two = upload(vec![2.0f32], &shape, device)?;
    let three = upload(vec![3.0f32], &shape, device)?;
    let six = Products(Precision::F32).of(&two, &three)?;
    let kernel = Kernel::of_each("add_scaled", 1).reads([&six, &six]);
    kernel.float(0.5).ints(&[1, 0]).fills(1).launch_one()?.to_vec1()
}

/// `wanted`, or float32 if the GPU is older than bfloat16, which the log says.
#[allow(unused_variables)]
pub(crate) fn precision(device: &Device, wanted: Precision) -> Result<Precision> {
    #[cfg(feature = "cuda")]
    if let (Device::Cuda(cuda), Precision::Bf16) = (device, wanted) {
        let (major, minor) = cuda.cuda_stream().context().compute_capability().w()?;
        // Ampere is 8.0.
        if major < 8 {
            let capability = format!("{major}.{minor}");
            tracing::warn!(capability, "this GPU does not multiply bfloat16; computing in float32");
            return Ok(Precision::F32);
        }
    }
    Ok(wanted)
}

/// By default the driver takes a pool's free memory back whenever a stream is waited for, which each step does, and cudarc makes
/// two events for each tensor, which only several streams need.
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
fn prepare(cuda: &CudaDevice) -> Result<()> {
    // SAFETY: a tensor of this device is allocated, used and freed on the device's one stream.
    unsafe { cuda.disable_event_tracking() };
    if let Some(pool) = pool(cuda)? {
        let mut keep = u64::MAX;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool is valid, and the driver copies the value, whose type is the attribute's.
        unsafe { result::mem_pool::set_attribute(pool, threshold, (&raw mut keep).cast()).w()? };
    }
    Ok(())
}

/// The pool of all tensors of the process on this GPU, if the GPU has pools.
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
fn pool(cuda: &CudaDevice) -> Result<Option<sys::CUmemoryPool>> {
    let stream = cuda.cuda_stream();
    let context = stream.context();
    // SAFETY: the device is open.
    context
        .has_async_alloc()
        .then(|| unsafe { result::device::get_default_mem_pool(context.cu_device()).w() })
        .transpose()
}

/// Gives the memory that no tensor uses back to the driver: between two rounds it is for others.
#[allow(unsafe_code, unused_variables)]
pub(crate) fn release(device: &Device) -> Result<()> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = device {
        // What was freed is free when the stream gets there.
        device.synchronize()?;
        if let Some(pool) = pool(cuda)? {
            // SAFETY: the pool is valid, and what is in use stays.
            unsafe { result::mem_pool::trim_to(pool, 0).w()? };
        }
    }
    Ok(())
}

/// While the result lives, the shapes that this thread's operations take are uploaded only once. Data must then go through
/// [`upload`]: candle keeps all that is small, for ever.
#[cfg(feature = "cuda")]
pub(crate) fn shapes_once(device: &Device) -> Option<impl Drop + use<>> {
    match device {
        Device::Cuda(cuda) => Some(cuda.enable_cuda_graph_htod_cache()),
        _ => None,
    }
}

/// A CPU takes shapes as they are.
#[cfg(not(feature = "cuda"))]
pub(crate) fn shapes_once(_: &Device) -> Option<()> {
    None
}

/// The tensor of these values, which differ from step to step.
pub(crate) fn upload<T: Number>(values: Vec<T>, shape: &Shape, device: &Device) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = device {
        if values.len() != shape.elem_count() {
            bail!("{} values for {shape:?}", values.len());
        }
        let storage = CudaStorage::wrap_cuda_slice(cuda.cuda_stream().clone_htod(&values).w()?, cuda.clone());
        return Ok(Tensor::from_storage(
            Storage::Cuda(storage),
            shape,
            BackpropOp::none(),
            false,
        ));
    }
    Tensor::from_vec(values, shape, device)
}
