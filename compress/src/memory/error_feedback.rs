//! Error feedback: the residual, the unsent part of earlier updates, is added to the next one.
//!
//! EF14 (Seide et al. 2014, Stich et al. 2018): with `v = delta + decay * residual`, the frame carries `C(v)`, and the
//! new residual is `v - C(v)`. With decay 1 nothing is lost: the sum of the decoded updates plus the residual equals
//! the sum of the deltas.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fidelity::{Products, Relation};
use crate::finite::update_not_finite;
use crate::frame::view::Frame;
use crate::memory::method::{CodedFrame, Encodes, Entry, MemoryInfo, State};
use crate::pending::Ack;
use crate::simd::vectorized;

// Values per block, so that the blocks of both vectors stay in the L1 cache.
const BLOCK: usize = 4096;

pub(crate) const METHOD: Entry = Entry {
    info: MemoryInfo {
        name: "error-feedback",
        about: "The unsent residual is added to the next update.",
        examples: &["'error-feedback'", "{ error-feedback = { decay = 0.5 } }"],
        encodes: Encodes::Update,
        has_residual: true,
    },
    parameters: Some("{ decay = .. }"),
    kind: Some(0),
    vectors: 1,
};

pub(crate) fn state(decay: Decay, len: usize) -> Box<dyn State> {
    Box::new(Residual::new(decay, len))
}

/// Share of the residual that is added to the next update, in (0, 1]. Default: 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "RawDecay")]
pub struct Decay {
    decay: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDecay {
    decay: Option<f64>,
}

/// The parameter is its own TOML table.
pub(crate) type Table = Decay;

impl Decay {
    /// A decay.
    ///
    /// # Errors
    /// `Usage` if `share` is not in (0, 1].
    pub fn new(share: f64) -> Result<Self, Error> {
        if share > 0.0 && share <= 1.0 {
            return Ok(Self { decay: share });
        }
        Err(Error::Usage(format!(
            "a decay must be above 0 and at most 1, not {share}"
        )))
    }

    /// The share.
    pub fn get(self) -> f64 {
        self.decay
    }
}

impl Default for Decay {
    fn default() -> Self {
        Self { decay: 1.0 }
    }
}

impl TryFrom<RawDecay> for Decay {
    type Error = Error;

    fn try_from(RawDecay { decay }: RawDecay) -> Result<Self, Error> {
        decay.map_or(Ok(Self::default()), Self::new)
    }
}

#[derive(Debug)]
pub(crate) struct Residual {
    pub(crate) values: Vec<f32>,
    pub(crate) decay: f32,
}

impl Residual {
    pub(crate) fn new(decay: Decay, len: usize) -> Self {
        Self {
            values: vec![0.0; len],
            decay: decay.get() as f32,
        }
    }
}

impl State for Residual {
    fn entry(&self) -> &'static Entry {
        &METHOD
    }

    /// `delta` becomes the previous residual.
    fn absorb(&mut self, delta: &mut [f32], _trained: Range<usize>, threads: usize) -> Result<(), Error> {
        absorb(&mut self.values, delta, self.decay, threads)
    }

    fn undo(&mut self, delta: &[f32]) {
        self.values.copy_from_slice(delta);
    }

    fn input<'v>(&'v self, _delta: &'v [f32]) -> &'v [f32] {
        &self.values
    }

    fn waited<'v>(&'v self, delta: &'v [f32]) -> Option<&'v [f32]> {
        Some(delta)
    }

    fn encoded(&mut self, coded: CodedFrame<'_>, delta: &mut [f32]) -> Result<(Relation, Vec<Products>), Error> {
        let values = &mut self.values;
        let products = coded.frame.measure(coded.threads, true, values, Some(delta))?;
        Ok((Relation::new(1.0, -f64::from(self.decay), 0.0), products))
    }

    fn settled(&mut self, frame: &Frame<'_>, ack: Ack) -> Result<(), Error> {
        match ack {
            Ack::Rejected => {
                frame.accumulate(1.0, &mut self.values)?;
                // Rounding may carry a sum that was the largest finite value to infinity.
                let values = self.values.iter_mut();
                values.for_each(|value| *value = value.clamp(f32::MIN, f32::MAX));
                Ok(())
            }
            Ack::Accepted | Ack::Dropped => Ok(()),
        }
    }

    fn vectors(&self) -> Vec<&[f32]> {
        vec![&self.values]
    }

    fn vectors_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.values]
    }
}

/// Sets `residual` to `delta + decay * residual`, and `delta` to the previous residual.
///
/// # Errors
/// `NotFinite` if the sum is not finite; then the residual is unchanged and `delta` is unspecified.
fn absorb(residual: &mut [f32], delta: &mut [f32], decay: f32, threads: usize) -> Result<(), Error> {
    let size = residual.len().div_ceil(threads.max(1)).max(BLOCK);
    let parts: Vec<_> = residual.chunks_mut(size).zip(delta.chunks_mut(size)).collect();
    let finite = crate::threads::map(parts, threads, |(residual, delta)| {
        let blocks = residual.chunks_mut(BLOCK).zip(delta.chunks_mut(BLOCK));
        blocks.fold(true, |finite, (residual, delta)| {
            let swapped = vectorized(
                #[inline(always)]
                || swap_sum(residual, delta, decay),
            );
            finite & swapped
        })
    });
    if finite.into_iter().all(|finite| finite) {
        return Ok(());
    }
    residual.copy_from_slice(delta);
    Err(update_not_finite())
}

/// Swaps as in [`absorb`]; returns whether the sums are finite.
#[inline(always)]
fn swap_sum(residual: &mut [f32], delta: &mut [f32], decay: f32) -> bool {
    let mut any = 0;
    for (residual, delta) in residual.iter_mut().zip(delta) {
        let before = *residual;
        let sum = *delta + decay * before;
        (*residual, *delta) = (sum, before);
        // Adding one to the exponent carries into the sign bit exactly for infinity and NaN.
        any |= (sum.to_bits() & 0x7fff_ffff).wrapping_add(1 << 23);
    }
    any >> 31 == 0
}
