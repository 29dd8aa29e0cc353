//! What our operations need of an NVIDIA GPU: the device, and the launches of the kernels in `kernels.cu`.

mod device;
#[cfg(feature = "cudnn")]
mod dnn;
#[cfg(not(feature = "cudnn"))]
#[path = "no_dnn.rs"]
mod dnn;
mod launch;
mod norms;
#[cfg(test)]
mod tests;

pub(crate) use device::{open, release, shapes_once, upload};
pub(super) use dnn::Convolution;
pub(super) use launch::Kernel;
pub(super) use norms::{RowNorm, Sums};
