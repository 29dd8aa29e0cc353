//! The `f32` slice behind an argument of a custom op.

use candle_core::{CpuStorage, Layout, Result, Tensor, bail};

/// The values of a CPU tensor, row-major.
///
/// # Errors
/// If the storage is not `f32` or its layout is not contiguous.
pub(super) fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("expected a contiguous tensor")
    };
    match storage {
        CpuStorage::F32(values) => Ok(&values[start..end]),
        other => bail!(
            "expected f32 values, found {:?}",
            candle_core::backend::BackendStorage::dtype(other)
        ),
    }
}

/// As [`values`], to be changed in place.
///
/// # Errors
/// As [`values`].
pub(super) fn values_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> Result<&'a mut [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("expected a contiguous tensor")
    };
    match storage {
        CpuStorage::F32(values) => Ok(&mut values[start..end]),
        other => bail!(
            "expected f32 values, found {:?}",
            candle_core::backend::BackendStorage::dtype(other)
        ),
    }
}

/// Calls `f` with the values of `tensor`, which must be contiguous `f32` on the CPU.
///
/// # Errors
/// As [`values`], and what `f` returns.
pub(super) fn with<T>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        candle_core::Storage::Cpu(storage) => f(values(storage, layout)?),
        _ => bail!("expected a tensor on the CPU"),
    }
}
