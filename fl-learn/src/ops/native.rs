//! Which tensors our own loops compute on.

use candle_core::Tensor;

/// Whether this program may meet a tensor on a GPU. Without it, what only a GPU computes is dead code, and with it candle's
/// products, convolutions and `backward` for every type of numbers: a third of the program. Tests compare the two ways.
const GPU: bool = cfg!(any(feature = "cuda", test));

/// Whether the values of `x` are in the memory of the CPU.
#[inline]
pub(super) fn on_cpu(x: &Tensor) -> bool {
    !GPU || x.device().is_cpu()
}
