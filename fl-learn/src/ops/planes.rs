//! What the norms of images share: each channel of an example is a plane of positions.

use candle_core::{Result, Tensor, bail};

use super::relu::relu;
use super::shape::expect;

#[derive(Debug, Clone, Copy)]
pub(super) struct Planes {
    pub(super) batch: usize,
    pub(super) channels: usize,
    pub(super) positions: usize,
}

impl Planes {
    /// The extents of `x`, if scale and shift suit it. Shapes: `x: [batch, channels, rows, columns]`, `w, b: [channels]`.
    pub(super) fn new(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Self> {
        let (batch, channels, rows, columns) = x.dims4()?;
        expect("the scale of a norm", w, &[channels])?;
        expect("the shift of a norm", b, &[channels])?;
        if x.elem_count() == 0 {
            bail!("the norm of no value: {:?}", x.dims());
        }
        Ok(Self {
            batch,
            channels,
            positions: rows * columns,
        })
    }
}

/// `(x - mean) * inverse * w + b` of a plane, then relu if `with_relu`.
#[inline(always)]
pub(super) fn scaled(x: &[f32], out: &mut [f32], [mean, inverse]: [f32; 2], w: f32, b: f32, with_relu: bool) {
    let factor = inverse * w;
    let term = b - mean * inverse * w;
    if with_relu {
        for (out, x) in out.iter_mut().zip(x) {
            *out = relu(x * factor + term);
        }
    } else {
        for (out, x) in out.iter_mut().zip(x) {
            *out = x * factor + term;
        }
    }
}
