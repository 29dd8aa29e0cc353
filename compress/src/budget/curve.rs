//! What bits and error a unit would have for each turn of its knob.

use crate::quantize::{DeadZone, Histogram, QuantizeSpec, Rounding};
use crate::reduce::Selection;
use crate::section::Input;

/// Points an octave.
const PER_OCTAVE: usize = 4;
/// Octaves below the largest magnitude.
const OCTAVES: usize = 14;

/// One turn of the knob.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    /// Step or threshold: more is coarser.
    pub(super) knob: f64,
    pub(super) bits: f64,
    /// Squared error.
    pub(super) error: f64,
}

/// The rate-distortion curve of one unit.
#[derive(Debug)]
pub(super) struct Curve {
    histogram: Histogram,
    knob: Knob,
    /// From the coarsest, which sends nothing, to the finest.
    pub(super) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
enum Knob {
    /// The step of a dead zone.
    Step { dead_zone: DeadZone, threshold: f64 },
    /// The step of stochastic rounding.
    Chance(DeadZone),
    /// The magnitude that a value must reach to be among the largest. Those sent take `bits` each; the error of their own
    /// quantisation is left out.
    Reach { bits: f64, len: usize },
}

impl Knob {
    fn of(input: &Input<'_>) -> Option<Self> {
        match (input.selection, input.quantize) {
            (Selection::All, QuantizeSpec::DeadZone(dead_zone)) => Some(match dead_zone.rounding() {
                Rounding::Nearest => Self::Step {
                    dead_zone,
                    threshold: dead_zone.threshold().unwrap_or(0.5),
                },
                Rounding::Stochastic => Self::Chance(dead_zone),
            }),
            (Selection::Largest(_), quantize) => Some(Self::Reach {
                bits: quantize.bits(),
                len: input.values.len(),
            }),
            _ => None,
        }
    }
}

impl Curve {
    /// Whether a unit has a knob.
    pub(super) fn has_knob(input: &Input<'_>) -> bool {
        Knob::of(input).is_some()
    }

    /// The curve of `input`, which has a knob.
    pub(super) fn new(input: &Input<'_>) -> Self {
        let mut curve = Self {
            histogram: Histogram::new(input.values),
            knob: Knob::of(input).unwrap_or(Knob::Reach { bits: 32.0, len: 1 }),
            points: Vec::new(),
        };
        let coarsest = curve.coarsest();
        let above = (coarsest / curve.histogram.largest().max(f64::from(f32::MIN_POSITIVE))).log2();
        let knobs = (0..=PER_OCTAVE * (OCTAVES + above as usize))
            .map(|at| coarsest * (-(at as f64) / PER_OCTAVE as f64).exp2());
        curve.points = knobs.map(|knob| curve.at(knob)).collect();
        curve
    }

    /// The turn that sends nothing.
    pub(super) fn coarsest(&self) -> f64 {
        let largest = self.histogram.largest().max(f64::from(f32::MIN_POSITIVE));
        match self.knob {
            Knob::Step { threshold, .. } => largest / threshold * 1.01,
            // Then a value is sent once in a thousand times.
            Knob::Chance(_) => largest.max(self.histogram.sum() * 1000.0),
            Knob::Reach { .. } => largest * 1.01,
        }
    }

    /// Bits and error at a turn.
    pub(super) fn at(&self, knob: f64) -> Point {
        let (bits, error) = match self.knob {
            Knob::Step { threshold, .. } => self.histogram.estimate(knob, threshold),
            Knob::Chance(_) => self.histogram.estimate_stochastic(knob),
            Knob::Reach { bits, len } => {
                let (count, below) = self.histogram.reaching(knob);
                let bits = count * bits + crate::code::support_bound(len, count.round() as usize);
                (bits, below)
            }
        };
        Point { knob, bits, error }
    }

    /// The input with its knob turned.
    pub(super) fn turned<'v>(&self, input: &Input<'v>, knob: f64) -> Input<'v> {
        let mut turned = input.clone();
        match self.knob {
            Knob::Step { dead_zone, .. } | Knob::Chance(dead_zone) => {
                let step = (knob as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
                turned.quantize = QuantizeSpec::DeadZone(dead_zone.with_step(step));
            }
            Knob::Reach { .. } => {
                let (count, _) = self.histogram.reaching(knob);
                turned.selection = Selection::Largest(count.round() as usize);
            }
        }
        turned
    }
}
