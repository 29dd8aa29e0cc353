//! The vectors of each kind of memory, and their transitions.

use crate::error::Error;
use crate::fidelity::{Products, Relation};
use crate::finite::{OVERFLOW_LIMIT, all_finite, update_not_finite};
use crate::frame::view::Frame;
use crate::memory::momentum::Momentum;
use crate::memory::residual;
use crate::pending::Ack;
use crate::sink::Sink;
use crate::spec::memory::Memory;

/// The vectors of one kind of memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MemoryState {
    Nothing,
    Residual { values: Vec<f32>, decay: f32 },
    Shadow(Vec<f32>),
    Momentum(Momentum),
}

impl MemoryState {
    /// Empty memory for `len` values.
    pub(crate) fn new(memory: Memory, len: usize) -> Self {
        match memory.resolved(true) {
            Memory::None | Memory::Cafe | Memory::Auto => Self::Nothing,
            Memory::ErrorFeedback { decay } => Self::Residual {
                values: vec![0.0; len],
                decay: decay.get() as f32,
            },
            Memory::Ef21 => Self::Shadow(vec![0.0; len]),
            Memory::Dgc(numbers) => Self::Momentum(Momentum::new(len, numbers)),
        }
    }

    /// Absorbs `delta`; [`MemoryState::input`] is then the vector to encode. Returns the products of the predictor with
    /// `delta`, per tensor.
    ///
    /// # Errors
    /// `NotFinite`; then the memory is unchanged and `delta` is unspecified.
    pub(crate) fn absorb(
        &mut self,
        delta: &mut [f32],
        predictor: Option<&Frame<'_>>,
        threads: usize,
    ) -> Result<Option<Vec<Products>>, Error> {
        let predicted = predictor.map(|predictor| predictor.measure_by_tensor(true, delta));
        let predicted = predicted.transpose()?;
        match self {
            Self::Residual { values, decay } => residual::absorb(values, delta, *decay, threads)?,
            Self::Momentum(momentum) => momentum.absorb(delta)?,
            Self::Shadow(shadow) => delta
                .iter_mut()
                .zip(shadow)
                .for_each(|(delta, shadow)| *delta -= *shadow),
            Self::Nothing => {}
        }
        let encodes_delta = matches!(self, Self::Shadow(_) | Self::Nothing);
        if encodes_delta && !all_finite(delta) {
            return Err(update_not_finite());
        }
        Ok(predicted)
    }

    /// Reverts [`MemoryState::absorb`]; `delta` must be unchanged since.
    pub(crate) fn undo(&mut self, delta: &[f32]) {
        match self {
            Self::Residual { values, .. } => values.copy_from_slice(delta),
            Self::Momentum(momentum) => momentum.undo(delta),
            Self::Shadow(_) | Self::Nothing => {}
        }
    }

    /// The vector to encode, after `absorb`.
    pub(crate) fn input<'v>(&'v self, delta: &'v [f32]) -> &'v [f32] {
        match self {
            Self::Residual { values, .. } => values,
            Self::Momentum(momentum) => &momentum.unsent,
            Self::Shadow(_) | Self::Nothing => delta,
        }
    }

    /// Records that `frame` encodes the input. Returns the products for the fidelity of each section. `delta` (as
    /// [`MemoryState::absorb`] left it) becomes the part that the frame does not carry, unless the memory keeps it.
    /// `predicted`: the predictor and the result of `absorb`.
    ///
    /// # Errors
    /// `NotFinite` if the shadow would not be finite; [`MemoryState::undo`] then restores the memory.
    pub(crate) fn encoded(
        &mut self,
        frame: &Frame<'_>,
        delta: &mut [f32],
        predicted: Option<(&Frame<'_>, &[Products])>,
        threads: usize,
    ) -> Result<(Relation, Vec<Products>), Error> {
        let relation = |encoded, other, added| Relation { encoded, other, added };
        match self {
            Self::Residual { values, decay } => {
                let products = frame.measure(threads, true, values, Some(delta))?;
                Ok((relation(1.0, -f64::from(*decay), 0.0), products))
            }
            Self::Shadow(shadow) => {
                let products = frame.measure(threads, true, delta, Some(shadow))?;
                // Smaller magnitudes cannot overflow: next to a magnitude that could, they vanish in rounding.
                if !shadow.iter().all(|value| value.abs() <= OVERFLOW_LIMIT) {
                    let mut sum = Sum { shadow, finite: true };
                    frame.decode_into(&mut sum)?;
                    if !sum.finite {
                        return Err(update_not_finite());
                    }
                }
                Ok((relation(1.0, 1.0, 1.0), products))
            }
            // The velocity is the raw update of the round, since it is what momentum correction adds to the unsent sum.
            Self::Momentum(momentum) => {
                let products = frame.measure(threads, false, &mut momentum.unsent, Some(&momentum.velocity))?;
                Ok((relation(0.0, 1.0, 0.0), products))
            }
            Self::Nothing => {
                let mut products = frame.measure(threads, true, delta, None)?;
                if let Some((predictor, before)) = predicted {
                    // With predictor `p`, raw update `u = v + p` and error `e = v - d`: `before` has the products `pp`
                    // and `pu`, `after` has `pe`.
                    let after = predictor.measure_by_tensor(false, delta)?;
                    for (products, places) in products.iter_mut().zip(frame.places()) {
                        for (before, after) in places.iter().map(|&at| (&before[at], &after[at])) {
                            let (pp, pv) = (before.dd, before.dv - before.dd);
                            products.ww += pp;
                            products.vw += pv;
                            products.dw += pv - after.dv;
                        }
                    }
                    return Ok((relation(1.0, 1.0, 1.0), products));
                }
                Ok((relation(1.0, 0.0, 0.0), products))
            }
        }
    }

    /// Applies the acknowledgement of `frame`.
    pub(crate) fn settled(&mut self, frame: &Frame<'_>, ack: Ack) -> Result<(), Error> {
        match (self, ack) {
            (Self::Residual { values, .. }, Ack::Rejected) => frame.accumulate(1.0, values),
            (Self::Shadow(shadow), Ack::Accepted) => frame.accumulate(1.0, shadow),
            (Self::Momentum(momentum), Ack::Accepted | Ack::Dropped) => momentum.sent(frame),
            _ => Ok(()),
        }
    }

    /// The residual, if the memory keeps one.
    pub(crate) fn residual(&self) -> Option<&[f32]> {
        match self {
            Self::Residual { values, .. } => Some(values),
            Self::Momentum(momentum) => Some(&momentum.unsent),
            Self::Shadow(_) | Self::Nothing => None,
        }
    }

    /// The number of this kind of memory in a state file, and its vectors.
    pub(crate) fn vectors(&self) -> (u8, Vec<&[f32]>) {
        match self {
            Self::Nothing => (0, Vec::new()),
            Self::Residual { values, .. } => (0, vec![values]),
            Self::Shadow(shadow) => (1, vec![shadow]),
            Self::Momentum(momentum) => (2, vec![&momentum.unsent, &momentum.velocity]),
        }
    }

    /// The vectors, for loading from a state file.
    pub(crate) fn vectors_mut(&mut self) -> Vec<&mut Vec<f32>> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Residual { values, .. } => vec![values],
            Self::Shadow(shadow) => vec![shadow],
            Self::Momentum(momentum) => vec![&mut momentum.unsent, &mut momentum.velocity],
        }
    }
}

/// Checks that the sum of a shadow and a frame is finite.
struct Sum<'a> {
    shadow: &'a [f32],
    finite: bool,
}

impl Sink for Sum<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let mut pairs = self.shadow[start..].iter().zip(values);
        self.finite &= pairs.all(|(shadow, value)| (shadow + value).is_finite());
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        for (&index, value) in indices.iter().zip(values) {
            self.dense(index as usize, std::slice::from_ref(value));
        }
    }
}
