//! Sums of two tensors.

use candle_core::{Result, Tensor};

use super::cuda::Kernel;
use super::relu::relu;
use super::shape::expect;
use super::tape::Tape;

/// `a + b`, as at the end of a residual block, then relu if `with_relu`. Shapes: `a` and `b` alike.
pub(crate) fn add(tape: &mut Tape, a: &Tensor, b: &Tensor, with_relu: bool) -> Result<Tensor> {
    expect("the second summand", b, a.dims())?;
    if tape.is_native(a) {
        return tape.looped(with_relu, [a, b], a.shape(), |[a, b], wanted| {
            let sum = a.iter().zip(b).map(|(a, b)| a + b);
            let out = if with_relu {
                sum.map(relu).collect()
            } else {
                sum.collect()
            };
            (out, move |grad, _| match wanted {
                [true, true] => [Some(grad.clone()), Some(grad)],
                [true, false] => [Some(grad), None],
                [false, _] => [None, Some(grad)],
            })
        });
    }
    tape.on_gpu(with_relu, [a, b], |[a, b], _| {
        let out = sum(&a, &b, 1.0, with_relu)?;
        Ok((out, move |grad: Tensor| Ok([Some(grad.clone()), Some(grad)])))
    })
}

/// `a + scale b`, as where an adapter's share is added to a layer's output. Shapes: `a` and `b` alike.
pub(crate) fn add_scaled(tape: &mut Tape, a: &Tensor, b: &Tensor, scale: f32) -> Result<Tensor> {
    expect("the second summand", b, a.dims())?;
    tape.apply(
        [a, b],
        a.shape(),
        |[a, b], wanted| {
            let out = a.iter().zip(b).map(|(a, b)| a + scale * b).collect();
            (out, move |grad, _| {
                let d_b = wanted[1].then(|| grad.iter().map(|g| g * scale).collect());
                [Some(grad), d_b]
            })
        },
        |[a, b], wanted| {
            let out = sum(&a, &b, scale, false)?;
            Ok((out, move |grad| {
                let d_b = wanted[1].then(|| &grad * f64::from(scale)).transpose()?;
                Ok([Some(grad), d_b])
            }))
        },
    )
}

/// `a + scale b` on a GPU, then relu if `with_relu`.
fn sum(a: &Tensor, b: &Tensor, scale: f32, with_relu: bool) -> Result<Tensor> {
    let len = a.elem_count();
    Kernel::of_each("add_scaled", len)
        .reads([a, b])
        .float(scale)
        .ints(&[len, with_relu.into()])
        .fills(a.shape())
        .launch_one()
}
