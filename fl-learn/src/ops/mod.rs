//! The differentiable operations that the built-in models are made of, fast on one core.
//!
//! candle's own convolution backward is several times slower than it need be on a CPU, and its fused norms, softmax,
//! rotary positions and attention have no backward at all: what lies below them would silently never be trained. So each
//! operation here is one forward and one backward over slices, and a [`Tape`] walks back through them. On any other device
//! the same functions are compositions of candle's kernels, forward and backward, on the same tape. Nothing here spawns a thread, and
//! every sum has a fixed order: the same input gives the same bits, however many threads the process has.

mod accumulate;
mod adamw;
mod attention;
mod channel_norm;
mod conv;
mod conv2d;
mod conv_grad;
mod convert;
mod cuda;
mod elementwise;
mod embedding;
mod gemm;
mod geometry;
#[cfg(test)]
mod gradients;
mod linear;
mod linear_loss;
mod loss;
mod lstm;
mod max_pool;
mod muon;
mod native;
mod norm;
mod optimizer;
mod patches;
mod pool;
mod rotary;
mod scratch;
mod sgd;
mod simd;
mod slices;
mod step_size;
mod tape;
mod tensors;

pub(crate) use accumulate::{SquaredGradients, add_weighted, weighted};
pub use attention::{Heads, attention, attention_packed};
pub use channel_norm::{Running, batch_norm, group_norm};
pub use conv::conv_relu_pool;
pub use conv2d::conv2d;
pub(crate) use convert::to_dtype;
pub(crate) use cuda::{open as open_gpu, release as release_gpu, shapes_once};
pub(crate) use elementwise::dropout_mask;
pub use elementwise::{add, add_scaled, dropout, gelu, mean_of_positions, relu, silu, silu_gate};
pub use embedding::embedding;
pub use geometry::Window;
pub use linear::{linear, linear_inputs_first};
pub use linear_loss::linear_cross_entropy;
pub(crate) use loss::predicted_classes;
pub use loss::{IGNORED, cross_entropy, squared_error};
pub use lstm::{LstmWeights, lstm};
pub use max_pool::max_pool;
pub use norm::{layer_norm, rms_norm};
pub use optimizer::LocalOptimizer;
pub use rotary::{Angles, frequencies, rotary};
pub(crate) use slices::with_values;
pub use tape::Tape;
