//! The gate of Llama's feed-forward layer.

use candle_core::{Result, Tensor};

use super::cuda::Kernel;
use super::shape::expect;
use super::simd::{sigmoid, vectorized};
use super::tape::Tape;

/// `silu(gate) up`, where `silu(x) = x sigmoid(x)` (Elfwing et al. 2017, Shazeer 2020). Shapes: `gate` and `up` alike.
pub(crate) fn silu_gate(tape: &mut Tape, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    expect("what is gated", up, gate.dims())?;
    tape.apply(
        [gate, up],
        gate.shape(),
        |[gate, up], _| {
            let mut out = vec![0.0; gate.len()];
            vectorized(
                #[inline(always)]
                || {
                    for ((out, g), u) in out.iter_mut().zip(gate).zip(up) {
                        *out = g * sigmoid(*g) * u;
                    }
                },
            );
            (out, |mut grad, [gate, up]| {
                let mut d_gate = vec![0.0; gate.len()];
                vectorized(
                    #[inline(always)]
                    || {
                        for (((grad, d), g), u) in grad.iter_mut().zip(&mut d_gate).zip(gate).zip(up) {
                            let s = sigmoid(*g);
                            *d = *grad * u * (s * (1.0 + g * (1.0 - s)));
                            *grad *= g * s;
                        }
                    },
                );
                [Some(d_gate), Some(grad)]
            })
        },
        |[gate, up], _| {
            let len = gate.elem_count();
            let shape = gate.shape().clone();
            let opened = Kernel::of_each("silu_gate", len).reads([&gate, &up]).ints(&[len]);
            let out = opened.fills(&shape).launch_one()?;
            Ok((out, move |grad: Tensor| {
                let back = Kernel::of_each("silu_gate_back", len).reads([&gate, &up, &grad]);
                Ok(back.ints(&[len]).fills(&shape).fills(&shape).launch()?.map(Some))
            }))
        },
    )
}
