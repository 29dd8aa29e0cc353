//! What our operations need of an NVIDIA GPU: the device, and the launches of the kernels in `kernels.cu`.

mod device;
mod launch;
mod norms;
#[cfg(test)]
mod tests;

pub(crate) use device::{open, release, shapes_once, upload};
pub(super) use launch::Kernel;
pub(super) use norms::{RowNorm, Sums};
