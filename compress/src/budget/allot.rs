//! Chooses the knobs that give the least total error for a number of bits. All errors are weighted (see [`Point`]).
//!
//! Three strategies compete, and the one with the least estimated error wins:
//!
//! 1. Equal slopes: the points that minimize `error + lambda * bits` (Shoham and Gersho 1988). Between two multipliers
//!    at which knobs change, all changing knobs are interpolated together.
//! 2. The same points, refined by a common factor. This spends the bits that remain where a curve jumps, such as that
//!    of a tensor with few distinct magnitudes.
//! 3. One knob for all curves: nearly optimal at high rates, and the baseline that an allotment must not fall behind.
//!
//! The error of each strategy decreases with more bits, and so does the minimum.

use std::borrow::Borrow;

use crate::budget::curve::{Curve, Point};
use crate::math;

// Bisection steps over multipliers: to 120 / 2^20 octaves.
const HALVINGS: usize = 20;
// Most steps of a search on a path of knobs.
const MOST_STEPS: usize = 32;
// Resolution of the bits that an error needs, as a share of them: finer than what the coder misses them by.
const RESOLUTION: f64 = 0.02;
// Share of the target that ends such a search.
const NEAR: f64 = 1.0 - 1e-9;
// Octaves between the coarsest and the finest knob.
const OCTAVES: f64 = 64.0;

/// A point on each curve.
#[derive(Debug)]
pub(crate) struct Allotment {
    points: Vec<Point>,
}

impl Allotment {
    /// The points of least error whose total bits are at most `target`, and close to it. If even the coarsest points
    /// exceed it, the coarsest points.
    pub(crate) fn new<C: Borrow<Curve>>(curves: &[C], target: f64) -> Self {
        let curves: Vec<&Curve> = curves.iter().map(Borrow::borrow).collect();
        let curves = curves.as_slice();
        let coarsest: Vec<Point> = curves.iter().map(|curve| curve.points[0]).collect();
        if sum(&coarsest) >= target {
            return Self { points: coarsest };
        }
        let (fits, passes) = neighbors(curves, |points| sum(points) <= target);
        let ways = [
            between(curves, &fits, &passes, target),
            finer(curves, &fits, target),
            equal(curves, target),
        ];
        // A finer step may increase the error of a tensor with few distinct magnitudes; the previous points then stay.
        Self {
            points: ways.into_iter().fold(
                fits,
                |best: Vec<Point>, way: Vec<Point>| if error(&way) < error(&best) { way } else { best },
            ),
        }
    }

    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }

    pub(crate) fn knobs(&self) -> Vec<f64> {
        self.points.iter().map(|point| point.knob).collect()
    }

    pub(crate) fn is_coarsest<C: Borrow<Curve>>(&self, curves: &[C]) -> bool {
        curves
            .iter()
            .zip(&self.points)
            .all(|(curve, point)| point.knob >= curve.borrow().points[0].knob)
    }
}

/// The fewest bits, but at least `least`, with which the error of all sections together is at most `most`, relative to their
/// energy and at equal slopes. Refines the curves as far as it must. Without the errors of stochastic rounding, which may be
/// larger than the values.
pub(crate) fn bits_within(curves: &mut [Curve], most: f64, least: f64) -> f64 {
    let counts: Vec<f64> = curves.iter().map(|curve| f64::from(curve.has_limit())).collect();
    let energies = curves
        .iter()
        .zip(&counts)
        .map(|(curve, counts)| counts * curve.weighted_energy());
    let most = most * most * energies.sum::<f64>();
    let passes = |points: &[Point]| {
        let errors = points
            .iter()
            .zip(&counts)
            .map(|(point, counts)| counts * point.weighted);
        errors.sum::<f64>() > most
    };
    loop {
        let (coarse, next) = neighbors(&curves.iter().collect::<Vec<_>>(), passes);
        if passes(&next) && curves.iter_mut().fold(false, |more, curve| curve.refine() | more) {
            continue;
        }
        let mut few = sum(&coarse).max(least);
        let mut fits = sum(&next).max(least);
        while few < (1.0 - RESOLUTION) * fits {
            let middle = (few + fits) / 2.0;
            if passes(Allotment::new(curves, middle).points()) {
                few = middle;
            } else {
                fits = middle;
            }
        }
        return fits;
    }
}

/// The points that minimize `error + lambda * bits` for two adjacent multipliers: the first points are the finest that are
/// `coarse`, the second are not, if such points exist.
fn neighbors(curves: &[&Curve], is_coarse: impl Fn(&[Point]) -> bool) -> (Vec<Point>, Vec<Point>) {
    let choose = |log: f64| -> Vec<Point> {
        let lambda = math::exp2(log);
        let cost = |point: &Point| point.weighted + lambda * point.bits;
        curves
            .iter()
            .filter_map(|curve: &&Curve| {
                let points = curve.points.iter().copied();
                points.min_by(|a, b| cost(a).total_cmp(&cost(b)))
            })
            .collect()
    };
    let most = curves.iter().flat_map(|curve| curve.points.first());
    let most = most.fold(f64::MIN_POSITIVE, |most, point| most.max(point.weighted));
    let most = math::log2(most) + 1.0;
    // Above the first multiplier only the coarsest points are chosen, below the second only the finest.
    let mut fits = most;
    let mut passes = most - 120.0;
    let mut best = choose(fits);
    let mut next = choose(passes);
    if is_coarse(&next) {
        return (next.clone(), next);
    }
    for _ in 0..HALVINGS {
        let middle = (fits + passes) / 2.0;
        let points = choose(middle);
        if is_coarse(&points) {
            (fits, best) = (middle, points);
        } else {
            (passes, next) = (middle, points);
        }
    }
    (best, next)
}

/// Interpolates from `fits` towards `passes`, all differing knobs together.
fn between(curves: &[&Curve], fits: &[Point], passes: &[Point], target: f64) -> Vec<Point> {
    let at = |share: f64| -> Vec<Point> {
        let pairs = curves.iter().zip(fits.iter().zip(passes));
        pairs
            .map(|(curve, (fits, passes)): (&&Curve, (&Point, &Point))| {
                if fits.knob == passes.knob {
                    return *fits;
                }
                curve.best_at(fits.knob * math::pow(passes.knob / fits.knob, share))
            })
            .collect()
    };
    furthest(at, fits.to_vec(), 1.0, target)
}

/// Refines the knobs of `fits` by a common factor. Sections that send nothing stay so, as their first values are the
/// most expensive, unless all sections send nothing.
fn finer(curves: &[&Curve], fits: &[Point], target: f64) -> Vec<Point> {
    let sends = |(curve, point): (&&Curve, &Point)| point.knob < curve.coarsest();
    let any = curves.iter().zip(fits).any(sends);
    let at = |octaves: f64| -> Vec<Point> {
        curves
            .iter()
            .zip(fits)
            .map(|(curve, point): (&&Curve, &Point)| {
                if !any || sends((curve, point)) {
                    curve.best_at(point.knob * math::exp2(-octaves))
                } else {
                    *point
                }
            })
            .collect()
    };
    furthest(at, fits.to_vec(), OCTAVES, target)
}

/// One knob for all curves, limited to the coarsest of each curve.
fn equal(curves: &[&Curve], target: f64) -> Vec<Point> {
    let coarsest = |curve: &&Curve| curve.points[0];
    let most = curves.iter().map(|curve| coarsest(curve).knob);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let at = |octaves: f64| -> Vec<Point> {
        let knob = most * math::exp2(-octaves);
        curves
            .iter()
            .map(|curve: &&Curve| match coarsest(curve) {
                point if point.knob <= knob => point,
                _ => curve.best_at(knob),
            })
            .collect()
    };
    furthest(at, curves.iter().map(coarsest).collect(), OCTAVES, target)
}

/// The furthest points on a path from 0 to `end` whose bits are at most `target`, or near it; `first` if there are none. By
/// turns half of the way between two places, and where a line through their bits reaches the target.
fn furthest(at: impl Fn(f64) -> Vec<Point>, first: Vec<Point>, end: f64, target: f64) -> Vec<Point> {
    let mut fits = 0.0;
    let mut passes = end;
    let mut best = first;
    let mut least = sum(&best);
    let mut most = f64::INFINITY;
    for step in 0..MOST_STEPS {
        let line = (target * (1.0 + NEAR) / 2.0 - least) / (most - least);
        let share = if step % 2 == 1 && most.is_finite() {
            line.clamp(0.01, 0.99)
        } else {
            0.5
        };
        let middle = fits + share * (passes - fits);
        let points = at(middle);
        let bits = sum(&points);
        if bits > target {
            (passes, most) = (middle, bits);
            continue;
        }
        (fits, least, best) = (middle, bits, points);
        if bits >= NEAR * target {
            break;
        }
    }
    best
}

fn sum(points: &[Point]) -> f64 {
    points.iter().map(|point| point.bits).sum()
}

fn error(points: &[Point]) -> f64 {
    points.iter().map(|point| point.weighted).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::code::method::CodeSpec;
    use crate::layout::Shape;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::dead_zone::DeadZone;
    use crate::reduce::method::{ReducerChoice, Sends, TensorValues};
    use crate::reduce::{keep, top_k};
    use crate::rng::KeyedRng;
    use crate::section::input::Input;

    fn laplace(len: usize, seed: u64, scale: f32) -> Vec<f32> {
        let rng = KeyedRng::new(seed, 0);
        let sign = |at: usize| if rng.bits(at) & 1 == 0 { scale } else { -scale };
        (0..len).map(|at| (1.0 - rng.unit(at)).ln() * sign(at)).collect()
    }

    fn curve(values: &[f32], chosen: &ReducerChoice) -> Curve {
        let quantize = match chosen.sends {
            Sends::All => QuantizeSpec::DeadZone(DeadZone::default()),
            _ => QuantizeSpec::Half,
        };
        let input = Input {
            tensor: TensorValues {
                values,
                squared_gradients: None,
                residual: None,
                shape: Shape::row(values.len()),
                places: 1,
                quantize,
                rng: KeyedRng::new(0, 0),
                unbiased: false,
                threads: 1,
            },
            chosen: chosen.clone(),
            leading: None,
            code: CodeSpec::Rans,
        };
        Curve::new(&input, 1.0)
    }

    fn knobs(curves: &[Curve], target: f64) -> (Vec<f64>, f64) {
        let allotment = Allotment::new(curves, target);
        (allotment.knobs(), sum(&allotment.points))
    }

    #[test]
    fn the_bits_are_those_asked_for() {
        let curves = [
            curve(&laplace(20_000, 1, 1.0), &keep::all()),
            curve(&laplace(5000, 2, 1e-3), &keep::all()),
            curve(&laplace(9000, 3, 10.0), &top_k::largest(90, None)),
        ];
        for target in [300.0, 3000.0, 30_000.0, 150_000.0] {
            let (_, bits) = knobs(&curves, target);
            assert!((0.98 * target..=target).contains(&bits), "{bits} of {target}");
        }
        assert_eq!(knobs(&curves, 0.0).1, 0.0);
    }

    /// Compares with every pair of points of both curves.
    #[test]
    fn no_other_points_give_less_error_for_the_bits() {
        for (scale, chosen) in [(1.0, keep::all()), (30.0, keep::all()), (5.0, top_k::largest(1, None))] {
            let curves = [
                curve(&laplace(8000, 1, 1.0), &keep::all()),
                curve(&laplace(3000, 2, scale), &chosen),
            ];
            for target in [1000.0, 5000.0, 20_000.0] {
                let (knobs, _) = knobs(&curves, target);
                let error: f64 = curves
                    .iter()
                    .zip(&knobs)
                    .map(|(curve, &knob)| curve.at(knob).error)
                    .sum();
                let pairs = curves[0]
                    .points
                    .iter()
                    .flat_map(|a| curves[1].points.iter().map(move |b| (a, b)));
                let fitting = pairs.filter(|(a, b)| a.bits + b.bits <= target);
                let best = fitting.map(|(a, b)| a.error + b.error).fold(f64::INFINITY, f64::min);
                assert!(error <= 1.02 * best, "{scale} {target}: {error} for {best}");
            }
        }
    }

    /// At high rates, equal slopes are equal steps, independent of the scale of a tensor.
    #[test]
    fn steps_become_equal_at_high_rates() {
        let curves = [
            curve(&laplace(10_000, 1, 1.0), &keep::all()),
            curve(&laplace(10_000, 2, 8.0), &keep::all()),
        ];
        let (knobs, _) = knobs(&curves, 120_000.0);
        assert!((knobs[0] / knobs[1]).log2().abs() < 0.3, "{knobs:?}");
    }

    /// Tensors of various sizes, scales and distributions, as `(len, log2 of scale, kind)`.
    fn mixture() -> impl Strategy<Value = Mixture> {
        let tensor = (4.0..14.0f64, -20.0..6.0f64, 0..5u8);
        proptest::collection::vec(tensor, 1..7).prop_map(|tensors| {
            let curves = tensors.into_iter().enumerate().map(|(at, (len, scale, kind))| {
                let scale = scale.exp2() as f32;
                let mut values = laplace(len.exp2() as usize, at as u64, scale);
                for (place, value) in values.iter_mut().enumerate() {
                    *value = match kind {
                        0 | 1 => *value,
                        // Nearly a single magnitude. With exactly one magnitude, the error is not monotone in the step.
                        2 => (scale + 0.3 * *value).copysign(*value),
                        3 if place % 20 != 0 => 0.0,
                        3 => *value,
                        _ => *value * (*value / scale).powi(2),
                    };
                }
                curve(&values, &keep::all())
            });
            Mixture(curves.collect())
        })
    }

    /// Curves with a short debug output.
    struct Mixture(Vec<Curve>);

    impl std::fmt::Debug for Mixture {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let ends = self.0.iter().map(|curve| (curve.energy(), curve.coarsest()));
            f.debug_list().entries(ends).finish()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, rng_seed: RngSeed::Fixed(9), ..ProptestConfig::default() })]

        #[test]
        fn never_more_error_than_one_step_for_all(Mixture(curves) in mixture(), share in 0.001..1.0f64) {
            let finest: f64 = curves.iter().map(|curve| curve.points[curve.points.len() - 1].bits).sum();
            let ours = Allotment::new(&curves, share * share * finest).points;
            // Baseline: the finest common step that fits.
            let steps = (-200..100).map(|eighths| (f64::from(eighths) / 8.0).exp2());
            let mut all = steps.map(|step| -> Vec<Point> {
                curves.iter().map(|curve| curve.best_at(step.min(curve.coarsest()))).collect()
            });
            if let Some(all) = all.find(|all| sum(all) <= sum(&ours)) {
                prop_assert!(error(&ours) <= 1.01 * error(&all), "{} for {}", error(&ours), error(&all));
            }
        }

        #[test]
        fn error_falls_as_the_budget_grows(Mixture(curves) in mixture(), first in 300.0..3000.0f64) {
            let mut least = f64::INFINITY;
            // Smaller differences are below the resolution of a histogram of 64 bins per octave.
            let slack = 1e-5 * curves.iter().map(Curve::energy).sum::<f64>();
            for at in 0..80 {
                let target = first * 1.08f64.powi(at);
                let ours = Allotment::new(&curves, target).points;
                prop_assert!(sum(&ours) <= target && error(&ours) <= 1.01 * least + slack, "{target}: {} after {least}", error(&ours));
                least = error(&ours).min(least);
            }
        }

        /// The bits for an error reach it, and a tenth fewer do not.
        #[test]
        fn bits_for_an_error_are_the_fewest(Mixture(curves) in mixture(), most in 0.05..0.95f64) {
            let mut curves = curves;
            let squared = most * most * curves.iter().map(Curve::energy).sum::<f64>();
            let bits = bits_within(&mut curves, most, 0.0);
            prop_assert!(error(&Allotment::new(&curves, bits).points) <= 1.01 * squared);
            let fewer = Allotment::new(&curves, 0.9 * bits).points;
            prop_assert!(error(&fewer) > squared, "{bits} bits");
        }

        /// The error limit holds for any number of bits, and changes nothing if there are enough bits.
        #[test]
        fn no_relative_error_passes_its_limit(Mixture(curves) in mixture(), limit in 0.05..0.95f64, target in 1.0..1e6f64) {
            let free = Allotment::new(&curves, target).points;
            let mut curves = curves;
            curves.iter_mut().for_each(|curve| curve.limit(limit));
            let least: f64 = curves.iter().map(|curve| curve.points[0].bits).sum();
            let limited = Allotment::new(&curves, target);
            prop_assert!(sum(&limited.points) <= target.max(least) * (1.0 + 1e-9));
            prop_assert_eq!(limited.is_coarsest(&curves), limited.points.iter().zip(&curves).all(|(p, c)| p.knob == c.points[0].knob));
            for (curve, point) in curves.iter().zip(&limited.points) {
                prop_assert!(point.error <= curve.energy() * limit * limit * 1.001);
            }
            if free.iter().zip(&curves).all(|(point, curve)| point.error <= curve.energy() * limit * limit) {
                let (with, without) = (error(&limited.points), error(&free));
                prop_assert!(with <= 1.05 * without, "{with} with a limit, {without} without");
            }
        }
    }
}
