//! Chooses the next target rate from the coded sizes of earlier attempts.

use crate::math;

/// Searches the target of the curves at which coding gives `goal` bytes: a secant through the last two attempts, within
/// the bracket of targets known to be too small and too large. All numbers are logarithms.
#[derive(Debug)]
pub(crate) struct RateController {
    goal: f64,
    next: f64,
    last: Option<(f64, f64)>,
    fits: f64,
    passes: f64,
    /// Minimum step down until an attempt fits.
    stride: f64,
}

impl RateController {
    pub(crate) fn new(first: f64, goal: f64) -> Self {
        Self {
            goal: math::ln(goal.max(1.0)),
            next: math::ln(first.max(1.0)),
            last: None,
            fits: f64::NEG_INFINITY,
            passes: f64::INFINITY,
            stride: 0.01,
        }
    }

    pub(crate) fn target(&self) -> f64 {
        math::exp(self.next)
    }

    /// Records the bytes that the last target gave.
    pub(crate) fn missed(&mut self, bytes: f64, fits: bool) {
        let asked = self.next;
        let given = math::ln(bytes.max(1.0));
        if fits {
            self.fits = self.fits.max(asked);
        } else {
            self.passes = self.passes.min(asked);
        }
        let slope = match self.last {
            Some((before, gave)) if (asked - before).abs() > 1e-9 => {
                ((given - gave) / (asked - before)).clamp(0.1, 4.0)
            }
            _ => 1.0,
        };
        self.last = Some((asked, given));
        self.next = asked + (self.goal - given) / slope;
        if !fits && self.fits == f64::NEG_INFINITY {
            // If the coded size hardly reacts, the secant steps are too small.
            self.next = self.next.min(asked - self.stride);
            self.stride *= 2.0;
        }
        if self.next <= self.fits || self.next >= self.passes {
            let middle = (self.fits + self.passes) / 2.0;
            self.next = if middle.is_finite() { middle } else { self.next };
        }
    }
}
