//! Values of a tensor on the CPU, changed in place.

use std::cell::Cell;

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Tensor, bail};

use super::slices::read;

/// What changes all values of a tensor, row-major, once.
struct Change<F>(Cell<Option<F>>);

impl<F: FnOnce(&mut [f32])> InplaceOp1 for Change<F> {
    fn name(&self) -> &'static str {
        "in place"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        match (storage, layout.contiguous_offsets(), self.0.take()) {
            (CpuStorage::F32(values), Some((start, end)), Some(change)) => change(&mut values[start..end]),
            _ => bail!("only contiguous f32 values are changed in place"),
        }
        Ok(())
    }
}

/// Changes each value of `x`.
///
/// # Errors
/// If `x` is not contiguous `f32` on the CPU.
pub(super) fn each(x: &Tensor, mut f: impl FnMut(&mut f32)) -> Result<()> {
    let change = |x: &mut [f32]| x.iter_mut().for_each(&mut f);
    x.inplace_op1(&Change(Cell::new(Some(change))))
}

/// Changes each value of `x`, given that of `y` at its place. Shapes: alike.
///
/// # Errors
/// As [`each`].
pub(super) fn each_by(x: &Tensor, y: &Tensor, mut f: impl FnMut(&mut f32, f32)) -> Result<()> {
    let y = read(y)?;
    let change = |x: &mut [f32]| x.iter_mut().zip(&*y).for_each(|(x, y)| f(x, *y));
    x.inplace_op1(&Change(Cell::new(Some(change))))
}

/// As [`each_by`], given those of `y` and `z`.
///
/// # Errors
/// As [`each`].
pub(super) fn each_by_two(x: &Tensor, y: &Tensor, z: &Tensor, mut f: impl FnMut(&mut f32, f32, f32)) -> Result<()> {
    let (y, z) = (read(y)?, read(z)?);
    let change = |x: &mut [f32]| {
        let others = y.iter().zip(&*z);
        x.iter_mut().zip(others).for_each(|(x, (y, z))| f(x, *y, *z));
    };
    x.inplace_op1(&Change(Cell::new(Some(change))))
}
