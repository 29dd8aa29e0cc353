//! Shapes that operations ask for.

use candle_core::{Result, Tensor, bail};

/// An error that names `what` unless `x` has the shape `dims`.
pub(super) fn expect(what: &str, x: &Tensor, dims: &[usize]) -> Result<()> {
    if x.dims() != dims {
        bail!("{what} has the shape {:?}; expected {dims:?}", x.dims());
    }
    Ok(())
}
