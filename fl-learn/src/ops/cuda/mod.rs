//! What our operations need of an NVIDIA GPU: the device, the launches of the kernels in `kernels.cu`, matrix products and convolutions.

mod device;
#[cfg(feature = "cudnn")]
mod dnn;
mod launch;
#[cfg(not(feature = "cudnn"))]
mod no_dnn;
mod norms;
mod products;
#[cfg(test)]
mod tests;

pub(crate) use device::{open, precision, release, shapes_once, upload};
#[cfg(feature = "cudnn")]
pub(super) use dnn::Convolution;
pub(super) use launch::{Kernel, Variable};
#[cfg(not(feature = "cudnn"))]
pub(super) use no_dnn::Convolution;
pub(super) use norms::{RowNorm, Sums};
pub(super) use products::Products;

/// The products of a convolution of `x` with `w`, of which each takes two tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    /// Of `x` and `w`: the result, `y`.
    Forward,
    /// Of `w` and the gradient of `y`: that of `x`.
    InputGrad,
    /// Of `x` and the gradient of `y`: that of `w`.
    WeightGrad,
}
