//! Momentum correction, clipping and factor masking of Deep Gradient Compression (Lin et al. 2018, section 3).
//!
//! `velocity = momentum * velocity + delta`, `unsent = unsent + velocity`, and the frame carries `C(unsent)`. If the
//! frame is accepted, the sent values are removed from `unsent`, and `velocity` is set to zero at the sent places
//! (factor masking), so that no stale momentum returns there. `delta` is first clipped to the norm `clip`. The warm-up
//! of the density is a schedule (see `docs/reference/compressors.md`).
//!
//! Buffers and counters pass through unclipped: both vectors are zero there between frames, and hold `delta` while the
//! frame is made.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fidelity::{Products, Relation};
use crate::finite::{all_finite, largest, update_not_finite};
use crate::frame::view::Frame;
use crate::memory::method::{CodedFrame, Encodes, Entry, MemoryInfo, State};
use crate::pending::Ack;
use crate::sink::Sink;

pub(crate) const METHOD: Entry = Entry {
    info: MemoryInfo {
        name: "dgc",
        about: "Deep Gradient Compression: momentum, and the sum of unsent momenta.",
        examples: &["'dgc'", "{ dgc = { momentum = 0.5, clip = 3.0 } }"],
        encodes: Encodes::Momenta,
        has_residual: true,
    },
    parameters: Some("{ momentum = .., clip = .. }"),
    kind: Some(2),
    vectors: 2,
};

pub(crate) fn state(numbers: Dgc, len: usize) -> Box<dyn State> {
    Box::new(Momentum {
        numbers,
        velocity: vec![0.0; len],
        unsent: vec![0.0; len],
    })
}

/// The parameters are their own TOML table.
pub(crate) type Table = Dgc;

/// Parameters of Deep Gradient Compression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawDgc")]
pub struct Dgc {
    /// Momentum factor, in [0, 1).
    momentum: f64,
    /// Limit of the Euclidean norm of an update; a longer update is scaled down to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    clip: Option<f64>,
}

impl Dgc {
    /// Momentum factor.
    pub fn momentum(&self) -> f64 {
        self.momentum
    }

    /// Limit of the Euclidean norm of an update.
    pub fn clip(&self) -> Option<f64> {
        self.clip
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDgc {
    #[serde(default = "nine_tenths")]
    momentum: f64,
    clip: Option<f64>,
}

fn nine_tenths() -> f64 {
    0.9
}

impl Default for Dgc {
    fn default() -> Self {
        Self {
            momentum: nine_tenths(),
            clip: None,
        }
    }
}

impl TryFrom<RawDgc> for Dgc {
    type Error = Error;

    fn try_from(RawDgc { momentum, clip }: RawDgc) -> Result<Self, Error> {
        if !(0.0..1.0).contains(&momentum) {
            return Err(Error::Usage(format!(
                "a momentum must be at least 0 and below 1, not {momentum}"
            )));
        }
        if let Some(clip) = clip.filter(|&clip| !(clip > 0.0 && clip.is_finite())) {
            return Err(Error::Usage(format!(
                "the norm `clip` must be positive and finite, not {clip}"
            )));
        }
        Ok(Self { momentum, clip })
    }
}

/// The two vectors of Deep Gradient Compression.
#[derive(Debug)]
struct Momentum {
    numbers: Dgc,
    velocity: Vec<f32>,
    unsent: Vec<f32>,
}

impl State for Momentum {
    fn entry(&self) -> &'static Entry {
        &METHOD
    }

    /// Adds `delta`, clipped in the range `trained`, to both vectors; replaces `delta` by the previous velocity, for `undo`.
    fn absorb(&mut self, delta: &mut [f32], trained: Range<usize>, _threads: usize) -> Result<(), Error> {
        let factor = match self.numbers.clip() {
            Some(clip) => {
                let squares: f64 = delta[trained.clone()]
                    .iter()
                    .map(|&value| f64::from(value) * f64::from(value))
                    .sum();
                (clip / squares.sqrt()).min(1.0)
            }
            None => 1.0,
        };
        let most: f64 = [&self.velocity[..], delta, &self.unsent]
            .map(|values| f64::from(largest(values)))
            .iter()
            .sum();
        if !all_finite(delta) || most >= f64::from(f32::MAX) {
            return Err(update_not_finite());
        }
        let momentum = self.numbers.momentum() as f32;
        let factor = factor as f32;
        let len = delta.len();
        let mut add = |range: Range<usize>, factor: f32| {
            let vectors = self.velocity[range.clone()]
                .iter_mut()
                .zip(&mut self.unsent[range.clone()]);
            for ((velocity, unsent), delta) in vectors.zip(&mut delta[range]) {
                let before = *velocity;
                *velocity = momentum * before + factor * *delta;
                *unsent += *velocity;
                *delta = before;
            }
        };
        let others = trained.end..len;
        add(trained, factor);
        add(others, 1.0);
        Ok(())
    }

    /// `unsent` is restored up to rounding.
    fn undo(&mut self, before: &[f32]) {
        let vectors = self.velocity.iter_mut().zip(&mut self.unsent);
        for ((velocity, unsent), before) in vectors.zip(before) {
            *unsent -= *velocity;
            *velocity = *before;
        }
    }

    fn input<'v>(&'v self, _delta: &'v [f32]) -> &'v [f32] {
        &self.unsent
    }

    /// The velocity is the raw update of the round, since it is what momentum correction adds to the unsent sum.
    fn encoded(&mut self, coded: CodedFrame<'_>, _delta: &mut [f32]) -> Result<(Relation, Vec<Products>), Error> {
        let unsent = &mut self.unsent;
        let velocity = &self.velocity;
        let products = coded.frame.measure(coded.threads, false, unsent, Some(velocity))?;
        Ok((Relation::new(0.0, 1.0, 0.0), products))
    }

    fn settled(&mut self, frame: &Frame<'_>, ack: Ack) -> Result<(), Error> {
        if ack == Ack::Rejected {
            return Ok(());
        }
        frame.accumulate(-1.0, &mut self.unsent)?;
        frame.decode_into(&mut Mask(&mut self.velocity))
    }

    fn vectors(&self) -> Vec<&[f32]> {
        vec![&self.unsent, &self.velocity]
    }

    fn vectors_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.unsent, &mut self.velocity]
    }
}

/// Zeroes the places that are nonzero in the frame.
struct Mask<'a>(&'a mut [f32]);

impl Sink for Mask<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        for (velocity, &value) in self.0[start..start + values.len()].iter_mut().zip(values) {
            *velocity = if value == 0.0 { *velocity } else { 0.0 };
        }
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        for (&index, &value) in indices.iter().zip(values) {
            if value != 0.0 {
                self.0[start + index as usize] = 0.0;
            }
        }
    }
}
