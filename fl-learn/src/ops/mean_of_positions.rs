//! The mean of each channel of an image.

use candle_core::{Result, Tensor, bail};

use super::simd::sum;
use super::tape::Tape;

/// Mean over all positions of each channel. Shapes: `x: [batch, channels, rows, columns]`; returns `[batch, channels]`.
pub(crate) fn mean_of_positions(tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
    let (batch, channels, rows, columns) = x.dims4()?;
    let positions = rows * columns;
    if positions == 0 {
        bail!("the mean of no position: {:?}", x.dims());
    }
    tape.apply(
        [x],
        (batch, channels),
        |[x], _| {
            let means = x.chunks_exact(positions).map(|plane| sum(plane) / positions as f32);
            (means.collect(), move |grad, _| {
                [Some(
                    grad.into_iter()
                        .flat_map(|g| std::iter::repeat_n(g / positions as f32, positions))
                        .collect(),
                )]
            })
        },
        |[x], _| {
            let shape = x.shape().clone();
            Ok((x.mean((2, 3))?, move |grad: Tensor| {
                let share = (grad / positions as f64)?.reshape((batch, channels, 1, 1))?;
                Ok([Some(share.broadcast_as(shape)?.contiguous()?)])
            }))
        },
    )
}
