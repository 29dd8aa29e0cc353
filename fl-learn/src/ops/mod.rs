//! The differentiable operations that the built-in models are made of, one a file, fast on one core.
//!
//! candle's own convolution backward is several times slower than it need be on a CPU, and its fused norms, softmax,
//! rotary positions and attention have no backward at all: what lies below them would silently never be trained. So an
//! operation here is a forward and a backward function over slices, beside the same on a GPU, by kernels of ours and candle's
//! products; a [`Tape`] takes both ([`Tape::apply`]) and walks back through them. Nothing here spawns a thread, and
//! every sum has a fixed order: the same input gives the same bits, however many threads the process has.

mod accumulate;
mod adamw;
mod add;
mod attention;
mod batch_norm;
mod conv2d;
mod conv_relu_pool;
mod convert;
mod cross_entropy;
mod cuda;
mod dropout;
mod embedding;
mod gelu;
mod gemm;
mod geometry;
mod group_norm;
mod in_place;
mod layer_norm;
mod linear;
mod linear_cross_entropy;
mod lstm;
mod max_pool;
mod mean_of_positions;
mod muon;
mod native;
mod optimizer;
mod patches;
mod planes;
mod predicted_classes;
mod relu;
mod relu_pool;
mod rms_norm;
mod rotary;
mod scratch;
mod sgd;
mod shape;
mod silu_gate;
mod simd;
mod slices;
mod squared_error;
mod step_size;
mod tape;
mod tensors;
#[cfg(test)]
mod tests;

pub(crate) use accumulate::{SquaredGradients, add_weighted, weighted};
pub(crate) use add::{add, add_scaled};
pub(crate) use attention::{Heads, attention, attention_packed};
pub(crate) use batch_norm::{Running, batch_norm};
pub(crate) use conv_relu_pool::conv_relu_pool;
pub(crate) use conv2d::conv2d;
pub(crate) use convert::to_dtype;
pub(crate) use cross_entropy::{IGNORED, cross_entropy};
pub(crate) use cuda::{open as open_gpu, precision, release as release_gpu, shapes_once, upload};
pub(crate) use dropout::{dropout, dropout_mask};
pub(crate) use embedding::embedding;
pub(crate) use gelu::gelu;
pub(crate) use geometry::Window;
pub(crate) use group_norm::group_norm;
pub(crate) use layer_norm::layer_norm;
pub(crate) use linear::{linear, linear_inputs_first};
pub(crate) use linear_cross_entropy::linear_cross_entropy;
pub(crate) use lstm::{LstmWeights, lstm};
pub(crate) use max_pool::max_pool;
pub(crate) use mean_of_positions::mean_of_positions;
#[cfg(test)]
pub(crate) use native::on_gpu;
pub(crate) use optimizer::LocalOptimizer;
pub(crate) use predicted_classes::predicted_classes;
pub(crate) use rms_norm::rms_norm;
pub(crate) use rotary::{Angles, frequencies, rotary};
pub(crate) use silu_gate::silu_gate;
pub(crate) use slices::with_values;
pub(crate) use squared_error::squared_error;
pub(crate) use tape::Tape;
