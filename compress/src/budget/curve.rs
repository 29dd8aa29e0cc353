//! The rate-distortion curve of a section: estimated bits and squared error for each value of its knob.

use crate::code::method::CodeSpec;
use crate::math;
use crate::quantize::QuantizeSpec;
use crate::quantize::dead_zone::DeadZone;
use crate::quantize::dead_zone::model::Histogram;
use crate::quantize::numbers::sum_of_squares;
use crate::quantize::uniform::Rounding;
use crate::reduce::method::Sends;
use crate::reduce::top_k;
use crate::section::input::Input;

// Points per octave.
const PER_OCTAVE: usize = 8;
// Octaves below the largest magnitude.
const OCTAVES: usize = 14;
// Bits of a nonempty section besides its values: recipe, step, mean, and the header of its level plane.
const HEAD: f64 = 14.0 * 8.0;
// Octaves of the finest step below the largest magnitude: a float has no more digits, and levels stay far from their
// limit.
const DIGITS: f64 = 24.0;
// Bisection steps in the search for the coarsest knob within the error limit.
const HALVINGS: usize = 16;
// The threshold at which rounding takes about the bits, and has about the error, of levels that the coder lowers.
const LOWERED: f64 = 0.8;
// Exceeds the width of a histogram bin: a knob finer by this factor sends all values of a bin of which the coarser one
// may send only a part.
const BIN: f64 = 1.02;

/// One value of the knob.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Step or threshold: larger is coarser.
    pub(crate) knob: f64,
    pub(crate) bits: f64,
    /// Squared error.
    pub(crate) error: f64,
    /// Squared error times the weight of the section.
    pub(crate) weighted: f64,
    /// Bits estimated from the histograms alone.
    entropy: f64,
}

#[derive(Debug)]
pub(crate) struct Curve {
    /// Histogram of the values; with components, of the remainder and of both factors.
    histograms: Vec<Histogram>,
    knob: Knob,
    energy: f64,
    len: f64,
    /// Actual bits / estimated bits, applied to the part of the bits that [`Curve::share`] counts.
    ratio: f64,
    /// Factor of the error when a budget is allotted.
    weight: f64,
    /// Whether the coder lowers levels (see [`DeadZone::optimized`]).
    is_optimized: bool,
    /// Limit of the squared error.
    most: f64,
    /// From the coarsest (which sends nothing, unless a [`Curve::limit`] is set) to the finest, or to the first that takes
    /// more bits than were asked for.
    pub(crate) points: Vec<Point>,
    /// Bits beyond which no points are needed.
    enough: f64,
    /// The coarsest knob, whatever the limit.
    first: f64,
    /// Points of the grid that were passed.
    passed: usize,
}

#[derive(Debug, Clone, Copy)]
enum Knob {
    /// The step of a dead zone.
    Step { dead_zone: DeadZone, threshold: f64 },
    /// The step of stochastic rounding.
    Chance(DeadZone),
    /// The threshold of a top-k selection. Sent values take `bits` each; their quantization error is ignored.
    Reach { bits: f64, len: usize, clip: Option<f32> },
}

impl Knob {
    fn of(input: &Input<'_>) -> Option<Self> {
        match (input.chosen.sends, input.tensor.quantize) {
            (Sends::All | Sends::Components, QuantizeSpec::DeadZone(dead_zone)) => Some(match dead_zone.rounding() {
                Rounding::Nearest => Self::Step {
                    dead_zone,
                    threshold: dead_zone.threshold().unwrap_or(0.5),
                },
                Rounding::Stochastic => Self::Chance(dead_zone),
            }),
            (Sends::Largest { clip }, quantize) => Some(Self::Reach {
                bits: quantize.method().bits(),
                len: input.tensor.values.len(),
                clip,
            }),
            _ => None,
        }
    }
}

impl Curve {
    pub(crate) fn has_knob(input: &Input<'_>) -> bool {
        Knob::of(input).is_some()
    }

    /// Whether the knob of a section is a step and its components may be split off.
    pub(crate) fn has_step(input: &Input<'_>) -> bool {
        matches!(Knob::of(input), Some(Knob::Step { .. } | Knob::Chance(_))) && input.chosen.sends == Sends::Components
    }

    /// The step of the method without a budget.
    pub(crate) fn own_step(&self, input: &Input<'_>) -> f64 {
        match self.knob {
            Knob::Step { dead_zone, .. } | Knob::Chance(dead_zone) => {
                f64::from(dead_zone.step_for(input.tensor.values))
            }
            Knob::Reach { .. } => self.coarsest(),
        }
    }

    #[cfg(test)]
    pub(crate) fn new(input: &Input<'_>, ratio: f64) -> Self {
        Self::weighted(input, ratio, 1.0, f64::INFINITY)
    }

    /// The curve of `input`, which has a knob, up to `enough` bits. `ratio`: actual bits / estimated bits of the previous frame;
    /// the error counts `weight` times.
    pub(crate) fn weighted(input: &Input<'_>, ratio: f64, weight: f64, enough: f64) -> Self {
        let histograms = match &input.leading {
            Some(leading) => vec![
                Histogram::new(&leading.left(input.tensor.values, input.tensor.shape)),
                Histogram::new(&leading.p),
                Histogram::new(&leading.q),
            ],
            None => vec![Histogram::new(input.tensor.values)],
        };
        let mut curve = Self {
            histograms,
            knob: Knob::of(input).unwrap_or(Knob::Reach {
                bits: 32.0,
                len: 1,
                clip: None,
            }),
            energy: sum_of_squares(input.tensor.values),
            len: input.tensor.values.len() as f64,
            ratio,
            weight,
            is_optimized: input.code == CodeSpec::Context,
            most: f64::INFINITY,
            points: Vec::new(),
            enough,
            first: 0.0,
            passed: 0,
        };
        curve.first = curve.coarsest();
        curve.extend();
        curve
    }

    /// The next knob of the grid; `None` after the finest.
    fn next_knob(&mut self) -> Option<f64> {
        let above = math::log2(self.first / self.largest());
        if self.passed > PER_OCTAVE * (OCTAVES + above as usize) {
            return None;
        }
        let knob = self.first * math::exp2(-(self.passed as f64) / PER_OCTAVE as f64);
        self.passed += 1;
        Some(knob)
    }

    /// Adds points until one takes more than enough bits.
    fn extend(&mut self) {
        while self.points.last().is_none_or(|point| point.bits <= self.enough) {
            let Some(knob) = self.next_knob() else { return };
            self.points.push(self.at(knob));
        }
    }

    /// Adds points of up to twice the bits. Returns whether there were any.
    pub(crate) fn refine(&mut self) -> bool {
        let before = self.points.len();
        self.enough = self.points.last().map_or(HEAD, |point| 2.0 * point.bits);
        self.extend();
        self.points.len() > before
    }

    #[cfg(test)]
    pub(crate) fn energy(&self) -> f64 {
        self.energy
    }

    pub(crate) fn weighted_energy(&self) -> f64 {
        self.weight * self.energy
    }

    /// Whether the error can be limited. Stochastic rounding is unbiased, and its error may be larger than the values.
    pub(crate) fn has_limit(&self) -> bool {
        !matches!(self.knob, Knob::Chance(_))
    }

    fn largest(&self) -> f64 {
        let largest = self.histograms.iter().map(Histogram::largest);
        largest.fold(f64::from(f32::MIN_POSITIVE), f64::max)
    }

    /// The knob at which nothing is sent.
    pub(crate) fn coarsest(&self) -> f64 {
        match self.knob {
            Knob::Step { threshold, .. } => self.largest() / threshold * 1.01,
            // At this step a value is sent with a probability of 1/1000.
            Knob::Chance(_) => self
                .histograms
                .iter()
                .map(Histogram::sum)
                .fold(self.largest(), |most, sum| most.max(sum * 1000.0)),
            Knob::Reach { .. } => self.largest() * 1.01,
        }
    }

    /// Bits and error at a knob.
    pub(crate) fn at(&self, knob: f64) -> Point {
        let (entropy, error) = self.entropy(knob);
        Point {
            knob,
            bits: self.corrected(entropy),
            error,
            weighted: self.weight * error,
            entropy,
        }
    }

    /// The finest knob that is worth its bits.
    fn finest(&self) -> f64 {
        match self.knob {
            Knob::Step { .. } | Knob::Chance(_) => self.largest() * math::exp2(-DIGITS),
            Knob::Reach { .. } => 0.0,
        }
    }

    /// The point at `knob`, or a coarser one with less error and no more bits: with nearly a single magnitude, a finer
    /// step may have a larger error.
    pub(crate) fn best_at(&self, knob: f64) -> Point {
        let knob = knob.max(self.finest());
        let coarser = self.points.iter().take_while(|point| point.knob > knob);
        coarser.fold(self.at(knob), |best, point| {
            let is_better = point.error < best.error && point.bits <= best.bits;
            if is_better { *point } else { best }
        })
    }

    /// Expected bits after coding, for `bits` estimated from the histograms.
    fn corrected(&self, bits: f64) -> f64 {
        let head = if bits > 0.0 { HEAD } else { 0.0 };
        bits + (self.ratio - 1.0) * self.share(bits, self.ratio > 1.0) + head
    }

    /// The part of `bits` to which the observed ratio applies: savings from neighbors grow with the values, up to one
    /// bit per value; losses of an untrained coder are limited to a tenth of that.
    fn share(&self, bits: f64, loses: bool) -> f64 {
        bits.min(if loses { 0.1 * self.len } else { self.len })
    }

    /// Bits and error at a knob, from the histograms alone.
    fn entropy(&self, knob: f64) -> (f64, f64) {
        let sums = |of: &dyn Fn(&Histogram) -> (f64, f64)| {
            let points = self.histograms.iter().map(of);
            points.fold((0.0, 0.0), |sums, point| (sums.0 + point.0, sums.1 + point.1))
        };
        match self.knob {
            Knob::Step { threshold, .. } => {
                let threshold = if self.is_optimized {
                    threshold.max(LOWERED)
                } else {
                    threshold
                };
                sums(&|histogram| histogram.estimate(knob, threshold))
            }
            Knob::Chance(_) => sums(&|histogram| histogram.estimate_stochastic(knob)),
            Knob::Reach { bits, len, .. } => sums(&|histogram| {
                let (count, below) = histogram.reaching(knob);
                let bits = count * bits + crate::code::gaps::support_bound(len, count.round() as usize);
                (bits, below)
            }),
        }
    }

    /// Squared error at a step with a dead zone up to `threshold`.
    fn error_at(&self, step: f64, threshold: f64) -> f64 {
        let errors = self
            .histograms
            .iter()
            .map(|histogram| histogram.estimate(step, threshold).1);
        errors.sum()
    }

    /// Whether the coder may lower levels at `step` without passing the limit of the error: at most, values of up to one step
    /// become zero, as with a threshold of one.
    fn may_lower(&self, step: f64) -> bool {
        self.is_optimized && (self.most.is_infinite() || self.error_at(step, 1.0) <= self.most)
    }

    /// Removes the points whose relative error (root of squared error over squared values) exceeds `error`.
    pub(crate) fn limit(&mut self, error: f64) {
        if !self.has_limit() {
            return;
        }
        self.most = error * error * self.energy;
        while self.points.last().is_none_or(|point| !self.fits(point)) {
            let Some(knob) = self.next_knob() else { break };
            self.points.push(self.at(knob));
        }
        let first = self.points.iter().position(|point| self.fits(point));
        let Some(first) = first.filter(|&at| at > 0) else {
            return;
        };
        let mut fine = self.points[first];
        let mut coarse = self.points[first - 1].knob;
        for _ in 0..HALVINGS {
            let middle = self.at((fine.knob * coarse).sqrt());
            if self.fits(&middle) {
                fine = middle;
            } else {
                coarse = middle.knob;
            }
        }
        self.points.splice(..first, [self.at(fine.knob / BIN)]);
        self.extend();
    }

    /// Whether the error of a point is within the limit.
    fn fits(&self, point: &Point) -> bool {
        match self.knob {
            Knob::Step { threshold, .. } => self.error_at(point.knob, threshold) <= self.most,
            _ => point.error <= self.most,
        }
    }

    /// Corrects the curve by the `bytes` that coding took at `knob`. Returns the new ratio of actual to estimated bits.
    pub(crate) fn observed_ratio(&mut self, knob: f64, bytes: f64) -> f64 {
        let (bits, _) = self.entropy(knob);
        if bits > 0.0 {
            let more = bytes * 8.0 - HEAD - bits;
            self.ratio = (1.0 + more / self.share(bits, more > 0.0)).clamp(0.2, 5.0);
            let mut points = std::mem::take(&mut self.points);
            for point in &mut points {
                point.bits = self.corrected(point.entropy);
            }
            self.points = points;
            self.extend();
        }
        self.ratio
    }

    /// The input with its knob set.
    pub(crate) fn with_knob<'v>(&self, input: &Input<'v>, knob: f64) -> Input<'v> {
        let mut adjusted = input.clone();
        match self.knob {
            Knob::Step { dead_zone, .. } | Knob::Chance(dead_zone) => {
                let step = (knob as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
                let zone = dead_zone.with_step(step);
                let zone = if self.may_lower(knob) { zone.optimized() } else { zone };
                adjusted.tensor.quantize = QuantizeSpec::DeadZone(zone);
            }
            Knob::Reach { clip, .. } => {
                let count: f64 = self.histograms.iter().map(|histogram| histogram.reaching(knob).0).sum();
                adjusted.chosen = top_k::largest(count.round() as usize, clip);
            }
        }
        adjusted
    }
}
