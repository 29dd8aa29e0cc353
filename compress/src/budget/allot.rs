//! Which turn of each knob gives the least error for the bits there are.

use super::curve::{Curve, Point};

/// Halvings of the range of the multiplier, and of the common factor.
const HALVINGS: usize = 32;

/// Curves that may be settled before their time.
const JUMPS: usize = 8;
/// A share of the target that is near enough not to settle any.
const NEARLY: f64 = 0.9;

/// A point on each curve, and which of the knobs are turned by a common factor to go between points.
#[derive(Debug)]
pub(super) struct Allotment {
    points: Vec<Point>,
    /// What sends nothing stays so, since its first values would cost most; unless all send nothing.
    turns: Vec<bool>,
}

impl Allotment {
    /// The points of one multiplier, whose bits together do not pass `target`.
    pub(super) fn new(curves: &[Curve], target: f64) -> Self {
        let points = by_multiplier(curves, target);
        let sends = |(curve, point): (&Curve, &Point)| point.knob < curve.coarsest();
        let mut turns: Vec<bool> = curves.iter().zip(&points).map(sends).collect();
        if !turns.contains(&true) {
            turns.fill(true);
        }
        Self { points, turns }
    }

    /// The turns whose bits together are `target`, or as near as the curves go without passing it, and their sum of bits.
    pub(super) fn turned(&self, curves: &[Curve], target: f64) -> (Vec<f64>, f64) {
        let at = |log: f64| -> Vec<Point> {
            let knobs = curves.iter().zip(&self.points).zip(&self.turns);
            let turn = |((curve, point), turns): ((&Curve, &Point), &bool)| match turns {
                true => curve.at(point.knob * log.exp2()),
                false => curve.at(point.knob),
            };
            knobs.map(turn).collect()
        };
        let (mut fits, mut passes) = (8.0, -16.0);
        let mut best = at(fits);
        for _ in 0..HALVINGS {
            let middle = (fits + passes) / 2.0;
            let points = at(middle);
            if sum(&points) <= target {
                (fits, best) = (middle, points);
            } else {
                passes = middle;
            }
        }
        (best.iter().map(|point| point.knob).collect(), sum(&best))
    }
}

/// The points of least `error + lambda * bits`, for the least multiplier whose bits do not pass `target`.
///
/// A curve may jump from few bits to more than there are left. Then that one stays where it is, and the multiplier goes on
/// for the others.
fn by_multiplier(curves: &[Curve], target: f64) -> Vec<Point> {
    let mut settled: Vec<Option<Point>> = vec![None; curves.len()];
    let (mut points, mut jump) = bisect(curves, &settled, target);
    for _ in 1..JUMPS {
        let Some(at) = jump.filter(|_| sum(&points) < NEARLY * target) else {
            break;
        };
        settled[at] = Some(points[at]);
        (points, jump) = bisect(curves, &settled, target);
    }
    points
}

/// The points at the least multiplier whose bits do not pass `target`, and which of the curves not settled jumps furthest
/// at the next one.
fn bisect(curves: &[Curve], settled: &[Option<Point>], target: f64) -> (Vec<Point>, Option<usize>) {
    let choose = |lambda: f64| -> Vec<Point> {
        let cost = |point: &Point| point.error + lambda * point.bits;
        let least = |curve: &Curve| curve.points.iter().copied().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let of = |(curve, settled): (&Curve, &Option<Point>)| settled.or_else(|| least(curve));
        curves.iter().zip(settled).filter_map(of).collect()
    };
    let most = curves.iter().flat_map(|curve| curve.points.first());
    let most = most.fold(f64::MIN_POSITIVE, |most, point| most.max(point.error)).log2() + 1.0;
    // Beyond the first, nothing is sent; below the second, all that can be.
    let (mut fits, mut passes) = (most, most - 120.0);
    let (mut best, mut next) = (choose(fits.exp2()), choose(passes.exp2()));
    for _ in 0..HALVINGS {
        let middle = (fits + passes) / 2.0;
        let points = choose(middle.exp2());
        if sum(&points) <= target {
            (fits, best) = (middle, points);
        } else {
            (passes, next) = (middle, points);
        }
    }
    let jump = |at: &usize| next[*at].bits - best[*at].bits;
    let furthest = (0..best.len()).max_by(|a, b| jump(a).total_cmp(&jump(b)));
    let furthest = furthest.filter(|at| jump(at) > 0.0);
    (best, furthest)
}

fn sum(points: &[Point]) -> f64 {
    points.iter().map(|point| point.bits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Shape;
    use crate::quantize::{DeadZone, QuantizeSpec};
    use crate::reduce::Selection;
    use crate::rng::Draws;
    use crate::section::Input;
    use crate::spec::CodeSpec;

    fn laplace(len: usize, seed: u64, scale: f32) -> Vec<f32> {
        let draws = Draws::new(seed, 0);
        let sign = |at: usize| if draws.bits(at) & 1 == 0 { scale } else { -scale };
        (0..len).map(|at| (1.0 - draws.unit(at)).ln() * sign(at)).collect()
    }

    fn curve(values: &[f32], selection: Selection) -> Curve {
        let quantize = match selection {
            Selection::All => QuantizeSpec::DeadZone(DeadZone::default()),
            _ => QuantizeSpec::Half,
        };
        let input = Input {
            values,
            shape: Shape::row(values.len()),
            selection,
            leading: None,
            clip: None,
            quantize,
            code: CodeSpec::Rans,
            draws: Draws::new(0, 0),
            unbiased: false,
            threads: 1,
        };
        Curve::new(&input, 1.0)
    }

    fn knobs(curves: &[Curve], target: f64) -> (Vec<f64>, f64) {
        Allotment::new(curves, target).turned(curves, target)
    }

    #[test]
    fn the_bits_are_those_asked_for() {
        let curves = [
            curve(&laplace(20_000, 1, 1.0), Selection::All),
            curve(&laplace(5000, 2, 1e-3), Selection::All),
            curve(&laplace(9000, 3, 10.0), Selection::Largest(90)),
        ];
        for target in [300.0, 3000.0, 30_000.0, 150_000.0] {
            let (_, bits) = knobs(&curves, target);
            assert!((0.98 * target..=target).contains(&bits), "{bits} of {target}");
        }
        assert_eq!(knobs(&curves, 0.0).1, 0.0);
    }

    /// Against every pair of points of both curves.
    #[test]
    fn no_other_points_give_less_error_for_the_bits() {
        for (scale, selection) in [
            (1.0, Selection::All),
            (30.0, Selection::All),
            (5.0, Selection::Largest(1)),
        ] {
            let curves = [
                curve(&laplace(8000, 1, 1.0), Selection::All),
                curve(&laplace(3000, 2, scale), selection),
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

    /// Equal slopes are equal steps at high rates, whatever the scale of a tensor.
    #[test]
    fn steps_become_equal_at_high_rates() {
        let curves = [
            curve(&laplace(10_000, 1, 1.0), Selection::All),
            curve(&laplace(10_000, 2, 8.0), Selection::All),
        ];
        let (knobs, _) = knobs(&curves, 120_000.0);
        assert!((knobs[0] / knobs[1]).log2().abs() < 0.3, "{knobs:?}");
    }
}
