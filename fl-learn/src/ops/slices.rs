//! The `f32` slices behind tensors.

use std::ops::{Deref, Range};

use candle_core::{CpuStorage, Result, Shape, Storage, Tensor, bail};

use super::simd::vectorized;

/// The values of a CPU tensor, row-major, read-locked.
struct Values<S> {
    storage: S,
    range: Range<usize>,
}

impl<S: Deref<Target = Storage>> Deref for Values<S> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.clone()],
            _ => &[],
        }
    }
}

pub(super) fn read(tensor: &Tensor) -> Result<impl Deref<Target = [f32]> + '_> {
    let (storage, layout) = tensor.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("expected a contiguous tensor")
    };
    match &*storage {
        Storage::Cpu(CpuStorage::F32(_)) => {}
        _ => bail!("expected f32 values on the CPU, found {:?}", tensor.dtype()),
    }
    Ok(Values {
        storage,
        range: start..end,
    })
}

/// A CPU tensor of these values, without a copy.
pub(super) fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_vec(values, shape, &candle_core::Device::Cpu)
}

/// Adds every row of `rows`, each as long as `to`.
pub(super) fn add_rows(to: &mut [f32], rows: &[f32]) {
    let len = to.len().max(1);
    vectorized(
        #[inline(always)]
        || {
            for row in rows.chunks_exact(len) {
                for (to, from) in to.iter_mut().zip(row) {
                    *to += from;
                }
            }
        },
    );
}

/// `to[i] += from[i]`.
pub(super) fn add(to: &mut [f32], from: &[f32]) {
    vectorized(
        #[inline(always)]
        || {
            for (to, from) in to.iter_mut().zip(from) {
                *to += from;
            }
        },
    );
}

/// Calls `f` with the values of `tensor`, which must be contiguous `f32` on the CPU.
pub(super) fn with<T>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
    f(&read(tensor)?)
}

/// Calls `f` with the values of an `f32` tensor, row-major: without a copy if it is contiguous and on the CPU.
pub(crate) fn with_values<T>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> T) -> Result<T> {
    if tensor.device().is_cpu() && tensor.is_contiguous() {
        return Ok(f(&read(tensor)?));
    }
    Ok(f(&tensor.flatten_all()?.to_vec1::<f32>()?))
}

/// Rows and columns exchanged. Shapes: `values: [rows * columns]`; returns `[columns * rows]`.
pub(super) fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    for (row, values) in values.chunks_exact(columns).enumerate() {
        for (column, value) in values.iter().enumerate() {
            out[column * rows + row] = *value;
        }
    }
    out
}

/// Sum of squares in eight fixed lanes.
pub(super) fn squares(values: &[f32]) -> f64 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut lanes = [0.0f64; 8];
    for chunk in chunks {
        lanes
            .iter_mut()
            .zip(chunk)
            .for_each(|(lane, v)| *lane += f64::from(*v) * f64::from(*v));
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>()
}
