//! What the norms of images share: each channel of an example is a plane of positions.

use candle_core::{Result, Tensor, bail};

use super::relu::relu;
use super::shape::expect;

/// Extents of images.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planes {
    pub(super) batch: usize,
    pub(super) channels: usize,
    pub(super) positions: usize,
}

/// What the way back of [`Planes::affine`] needs.
pub(super) struct Affine {
    normal: Tensor,
    scale: Tensor,
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

    /// Of one value for each channel, `[1, channels, 1, 1]`.
    pub(super) fn per_channel(self, t: &Tensor) -> Result<Tensor> {
        t.reshape((1, self.channels, 1, 1))
    }

    /// On other devices: scale and shift of `normal`ized values.
    pub(super) fn affine(self, normal: Tensor, w: &Tensor, b: &Tensor) -> Result<(Tensor, Affine)> {
        let scale = self.per_channel(w)?;
        let out = normal.broadcast_mul(&scale)?.broadcast_add(&self.per_channel(b)?)?;
        Ok((out, Affine { normal, scale }))
    }
}

impl Affine {
    /// Gradients of input, scale and shift, as far as they are wanted. `input_grad` gives that of the input for that of the
    /// normalized values.
    pub(super) fn backward(
        self,
        grad: &Tensor,
        wanted: [bool; 3],
        input_grad: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<[Option<Tensor>; 3]> {
        let db = wanted[2].then(|| grad.sum((0, 2, 3))).transpose()?;
        let dw = wanted[1].then(|| (grad * &self.normal)?.sum((0, 2, 3))).transpose()?;
        let dx = wanted[0]
            .then(|| input_grad(&grad.broadcast_mul(&self.scale)?))
            .transpose()?;
        Ok([dx, dw, db])
    }
}

/// `(x - mean) * inverse * w + b` of a plane, then relu if `with_relu`.
#[inline(always)]
pub(super) fn scaled(x: &[f32], out: &mut [f32], [mean, inverse]: [f32; 2], w: f32, b: f32, with_relu: bool) {
    let (factor, term) = (inverse * w, b - mean * inverse * w);
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
