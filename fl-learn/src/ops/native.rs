//! Which tensors our own loops compute on.

use candle_core::Tensor;

/// Whether this program may meet a tensor on a GPU. Without it, what only a GPU computes is dead code, and with it candle's
/// products, convolutions and `backward` for every type of numbers: a third of the program. Tests compare the two ways.
const GPU: bool = cfg!(any(feature = "cuda", test));

#[inline]
pub(super) fn on_cpu(x: &Tensor) -> bool {
    !GPU || x.device().is_cpu() && !as_on_gpu()
}

#[cfg(not(test))]
const fn as_on_gpu() -> bool {
    false
}

#[cfg(test)]
use test::as_on_gpu;
#[cfg(test)]
pub(crate) use test::on_gpu;

#[cfg(test)]
mod test {
    use std::cell::Cell;

    thread_local! {
        static ON_GPU: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn as_on_gpu() -> bool {
        ON_GPU.get()
    }

    /// Runs `f` as on a GPU: all operations of this thread are what they are there, by kernels.
    pub(crate) fn on_gpu<T>(f: impl FnOnce() -> T) -> T {
        ON_GPU.set(true);
        let result = f();
        ON_GPU.set(false);
        result
    }
}
