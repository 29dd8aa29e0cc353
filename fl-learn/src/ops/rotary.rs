//! Rotary positions (Su et al. 2021).

use std::sync::Arc;

use candle_core::{Result, Tensor, bail};

use super::cuda::Kernel;
use super::tape::Tape;

/// Cosine and sine of the angle of each position and each pair of values.
#[derive(Debug, Clone)]
pub(crate) struct Angles {
    /// `[positions, dim / 2]` each.
    turns: Arc<Vec<[f32; 2]>>,
    half: usize,
}

impl Angles {
    /// Angles `position * frequency`, one frequency for each pair of values.
    pub(crate) fn new(positions: usize, frequencies: &[f64]) -> Self {
        let turns = (0..positions).flat_map(|position| {
            frequencies.iter().map(move |frequency| {
                // In f32 as the models' own code has it.
                let angle = position as f32 * *frequency as f32;
                [angle.cos(), angle.sin()]
            })
        });
        Self {
            turns: Arc::new(turns.collect()),
            half: frequencies.len(),
        }
    }

    pub(crate) fn positions(&self) -> usize {
        self.turns.len() / self.half.max(1)
    }
}

/// `theta^(-2 i / dim)` for each pair of values.
pub(crate) fn frequencies(dim: usize, theta: f64) -> Vec<f64> {
    (0..dim / 2)
        .map(|i| 1.0 / theta.powf(2.0 * i as f64 / dim as f64))
        .collect()
}

/// Turns the pair of values `i` and `i + dim / 2` of each head by the angle of the token's position. Shapes:
/// `x: [batch * len, heads * dim]`, the rows of each text one after another.
pub(crate) fn rotary(tape: &mut Tape, x: &Tensor, angles: &Angles, len: usize) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let half = angles.half;
    let positions = angles.positions();
    let shape = x.dims();
    if len == 0 || half == 0 || !rows.is_multiple_of(len) || !width.is_multiple_of(2 * half) || len > positions {
        bail!("{len} tokens and {positions} positions of {half} angles for {shape:?}");
    }
    tape.apply(
        [x],
        x.shape(),
        |[x], _| {
            let mut out = x.to_vec();
            turn(&mut out, angles, len, width, 1.0);
            let angles = angles.clone();
            (out, move |mut grad, _| {
                turn(&mut grad, &angles, len, width, -1.0);
                [Some(grad)]
            })
        },
        |[x], _| {
            let turns: Vec<f32> = angles.turns[..len * half].as_flattened().to_vec();
            let turns = Tensor::from_vec(turns, (len, half, 2), x.device())?;
            let turned = move |x: &Tensor, sign| {
                let pairs = rows * width / 2;
                Kernel::of_each("rotary", pairs)
                    .reads([x, &turns])
                    .ints(&[len, width, half])
                    .float(sign)
                    .ints(&[pairs])
                    .fills(x.shape())
                    .launch_one()
            };
            Ok((turned(&x, 1.0)?, move |grad: Tensor| Ok([Some(turned(&grad, -1.0)?)])))
        },
    )
}

/// Turns in place, back if `sign` is -1.
fn turn(values: &mut [f32], angles: &Angles, len: usize, width: usize, sign: f32) {
    let half = angles.half;
    for (row, values) in values.chunks_exact_mut(width).enumerate() {
        let turns = &angles.turns[row % len * half..][..half];
        for head in values.chunks_exact_mut(2 * half) {
            let (low, high) = head.split_at_mut(half);
            for ((a, b), [cos, sin]) in low.iter_mut().zip(high).zip(turns) {
                let sin = sin * sign;
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}
