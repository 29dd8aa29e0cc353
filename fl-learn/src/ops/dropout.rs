//! Dropout.

use candle_core::{Result, Tensor, bail};

use super::cuda::Kernel;
use super::tape::Tape;
use crate::data::Rng;

/// In a training step, sets each value to 0 with this `probability`, otherwise divides it by the probability of being
/// kept (Srivastava et al. 2014). `x` itself in an evaluation.
pub(crate) fn dropout(tape: &mut Tape, x: &Tensor, probability: f32) -> Result<Tensor> {
    if !(0.0..1.0).contains(&probability) {
        bail!("a dropout of {probability}");
    }
    let Some(seed) = tape.draw().filter(|_| probability > 0.0) else {
        return Ok(x.clone());
    };
    tape.apply(
        [x],
        x.shape(),
        |[x], _| {
            let mut out = x.to_vec();
            drop_out(&mut out, seed, probability);
            (out, move |mut grad, _| {
                drop_out(&mut grad, seed, probability);
                [Some(grad)]
            })
        },
        |[x], _| {
            let len = x.elem_count();
            let shape = x.shape().clone();
            let dropped = move |x: &Tensor| {
                Kernel::of_each("dropout", len)
                    .reads([x])
                    .bits(&[seed as u32, (seed >> 32) as u32, limit(probability)])
                    .float(scale(probability))
                    .ints(&[len])
                    .fills(&shape)
                    .launch_one()
            };
            Ok((dropped(&x)?, move |grad: Tensor| Ok([Some(dropped(&grad)?)])))
        },
    )
}

/// What dropout multiplies `count` values by.
pub(crate) fn dropout_mask(count: usize, seed: u64, probability: f32) -> Vec<f32> {
    let mut mask = vec![1.0; count];
    drop_out(&mut mask, seed, probability);
    mask
}

/// Forward and backward are the same product with the mask of this seed.
fn drop_out(values: &mut [f32], seed: u64, probability: f32) {
    let mut rng = Rng::new(seed);
    let limit = limit(probability);
    let scale = scale(probability);
    // Two draws of 32 bits at a time.
    for pair in values.chunks_mut(2) {
        let bits = rng.bits();
        for (value, bits) in pair.iter_mut().zip([bits as u32, (bits >> 32) as u32]) {
            *value = if bits < limit { 0.0 } else { *value * scale };
        }
    }
}

/// Draws of 32 bits below it drop a value.
fn limit(probability: f32) -> u32 {
    (f64::from(probability) * 4_294_967_296.0) as u32
}

/// What the other values are multiplied by.
fn scale(probability: f32) -> f32 {
    1.0 / (1.0 - probability)
}
