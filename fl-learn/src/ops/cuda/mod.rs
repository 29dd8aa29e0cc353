//! What our operations need of an NVIDIA GPU: the device, and the launches of the kernels in `kernels.cu`.

mod device;
#[cfg(test)]
mod emulator;
mod launch;
mod norms;

pub(crate) use device::{open, release, shapes_once, upload};
pub(super) use launch::Kernel;
pub(super) use norms::{RowNorm, Sums};
