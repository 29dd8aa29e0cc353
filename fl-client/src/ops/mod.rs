//! The few differentiable operations the built-in models are made of, fast on one core.
//!
//! candle's own convolution backward is several times slower than it need be on a CPU, so each layer here is one
//! custom op whose forward and backward are matrix products and one pass over slices, and a [`Tape`] walks back through
//! them. On any other device the same functions call candle's kernels and candle's own `backward`. Nothing here spawns a thread, and every sum has a fixed
//! order: the same input gives the same bits, however many threads the process has.

mod conv;
mod conv_grad;
mod gemm;
mod geometry;
#[cfg(test)]
mod gradients;
mod linear;
mod loss;
mod patches;
mod pool;
mod scratch;
mod sgd;
mod slices;
mod tape;

pub use conv::conv_relu_pool;
pub use geometry::Window;
pub use linear::linear;
pub use loss::cross_entropy;
pub use sgd::Sgd;
pub use tape::Tape;
