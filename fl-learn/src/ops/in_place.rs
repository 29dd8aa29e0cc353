//! Values of a tensor on the CPU, changed in place. The closures should own their numbers (`move`): behind a reference, a number might
//! be one of those that change, and no loop over it is vectorized.

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

pub(super) fn each(x: &Tensor, f: impl Fn(&mut f32)) -> Result<()> {
    change(x, move |x| {
        for x in x {
            f(x);
        }
    })
}

/// Changes each value of `x`, given that of `y` at its place. Shapes: alike.
pub(super) fn each_by(x: &Tensor, y: &Tensor, f: impl Fn(&mut f32, f32)) -> Result<()> {
    let y = read(y)?;
    let y = &*y;
    change(x, move |x| {
        for (x, y) in x.iter_mut().zip(y) {
            f(x, *y);
        }
    })
}

/// As [`each_by`], given those of `y` and `z`.
pub(super) fn each_by_two(x: &Tensor, y: &Tensor, z: &Tensor, f: impl Fn(&mut f32, f32, f32)) -> Result<()> {
    let y = read(y)?;
    let z = read(z)?;
    let y = &*y;
    let z = &*z;
    change(x, move |x| {
        for ((x, y), z) in x.iter_mut().zip(y).zip(z) {
            f(x, *y, *z);
        }
    })
}

fn change(x: &Tensor, f: impl FnOnce(&mut [f32])) -> Result<()> {
    x.inplace_op1(&Change(Cell::new(Some(f))))
}
