//! What candle leaves to its callers on an NVIDIA GPU: one stream a device, memory that stays between steps, and shapes that are
//! uploaded once. Without the feature `cuda` nothing here does anything.

#[cfg(feature = "cuda")]
use candle_core::{
    CudaDevice, CudaStorage, Storage,
    cuda_backend::{
        CudaDType, WrapErr as _,
        cudarc::driver::{DeviceRepr, result, sys},
    },
    op::BackpropOp,
};
use candle_core::{Device, Result, Shape, Tensor};

/// A number that [`upload`] takes.
#[cfg(not(feature = "cuda"))]
pub(crate) trait Number: candle_core::WithDType {}
#[cfg(feature = "cuda")]
pub(crate) trait Number: candle_core::WithDType + CudaDType + DeviceRepr {}
impl Number for f32 {}
impl Number for u32 {}

/// The GPU of this number, with a stream of its own for all threads: jobs run on changing threads of a pool.
///
/// # Errors
/// If the driver refuses.
pub(crate) fn open(ordinal: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(ordinal)?;
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = &device {
        prepare(cuda)?;
    }
    Ok(device)
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
    let pool = || unsafe { result::device::get_default_mem_pool(context.cu_device()).w() };
    context.has_async_alloc().then(pool).transpose()
}

/// Gives the memory that no tensor uses back to the driver: between two rounds it is for others.
///
/// # Errors
/// If the device failed.
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
///
/// # Errors
/// If the shape has another number of values, or the device is out of memory.
pub(crate) fn upload<T: Number>(values: Vec<T>, shape: &Shape, device: &Device) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = device {
        if values.len() != shape.elem_count() {
            candle_core::bail!("{} values for {shape:?}", values.len());
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
