use super::*;
use crate::code::method::Code;
use crate::layout::Shape;
use crate::quantize::QuantizeSpec;
use crate::quantize::dead_zone::decode::Plane;
use crate::quantize::laws::{corruption, gaussian, heavy, round_trip, sizes, squared_error, unbiased};
use crate::quantize::method::ValuePlane;
use crate::quantize::numbers::root_mean_square;
use crate::rng::KeyedRng;
use crate::wire::Reader;

const G8: [f32; 8] = [0.9, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6];

fn nearest(step: f32, threshold: f64) -> QuantizeSpec {
    QuantizeSpec::DeadZone(DeadZone::nearest(1.0, threshold).unwrap().with_step(step))
}

fn stochastic(step: f32) -> QuantizeSpec {
    QuantizeSpec::DeadZone(DeadZone::stochastic(1.0).unwrap().with_step(step))
}

#[test]
fn the_worked_example() {
    // Levels [2, -1, 1, 0, 0, 0, 0, 1]; the mean magnitude at level one is (.5 + .3 + .6) / 3.
    let out = round_trip(nearest(0.4, 0.6), &G8, Code::Pack, 0);
    let mean = out[7];
    assert!((mean - 1.4 / 3.0).abs() < 1e-6);
    assert_eq!(out, [0.8, -mean, mean, 0.0, 0.0, 0.0, 0.0, mean]);
}

#[test]
fn small_values_are_zero_and_errors_bounded() {
    let values = heavy(5000, 7);
    for (relative, threshold) in [(0.1, 0.5), (0.5, 0.66), (2.0, 0.66), (2.0, 1.0), (8.0, 0.8)] {
        let step = (relative * root_mean_square(&values)) as f32;
        let out = round_trip(nearest(step, threshold), &values, Code::Rans, 0);
        for (value, out) in values.iter().zip(&out) {
            if f64::from(value.abs()) < threshold * f64::from(step) * 0.9999 {
                assert_eq!(*out, 0.0);
            }
            assert!((value - out).abs() <= step * 1.0001 && value * out >= 0.0);
        }
        let whole = squared_error(&values, &vec![0.0; values.len()]);
        assert!(squared_error(&values, &out) < whole, "not a contraction");
    }
}

#[test]
fn a_matrix_decodes_as_a_row_does_under_every_code() {
    let (values, rng) = (heavy(7 * 301, 2), KeyedRng::new(0, 0));
    let decode = |shape: Shape, code| {
        let (mut bytes, mut out) = (Vec::new(), vec![0.0; values.len()]);
        DeadZone::default().encode(&values, shape, code, rng, &mut bytes);
        let mut open = Plane::read(&mut Reader::new(&bytes), shape, code)
            .unwrap()
            .open()
            .unwrap();
        out.chunks_mut(500).for_each(|part| open.read(part).unwrap());
        open.finish().unwrap();
        out
    };
    let row = decode(Shape::row(values.len()), Code::Pack);
    for code in Code::ALL.iter().copied() {
        assert_eq!(decode(Shape { rows: 7, cols: 301 }, code), row);
    }
}

#[test]
fn only_context_coding_of_nearest_levels_is_optimized() {
    let (values, rng) = (heavy(3000, 6), KeyedRng::new(3, 0));
    let bytes = |zone: DeadZone, code| {
        let mut bytes = Vec::new();
        zone.encode(&values, Shape { rows: 30, cols: 100 }, code, rng, &mut bytes);
        bytes
    };
    let zone = DeadZone::default();
    assert!(bytes(zone.optimized(), Code::Context).len() < bytes(zone, Code::Context).len());
    assert_eq!(bytes(zone.optimized(), Code::Rans), bytes(zone, Code::Rans));
    let drawn = DeadZone::stochastic(2.0).unwrap();
    assert_eq!(bytes(drawn.optimized(), Code::Context), bytes(drawn, Code::Context));
}

#[test]
fn a_relative_step_never_sends_nothing() {
    let spec = QuantizeSpec::DeadZone(DeadZone::default());
    assert_eq!(round_trip(spec, &[3.0], Code::Pack, 0), [3.0]);
    assert_eq!(round_trip(spec, &[-0.5; 40], Code::Rans, 0), [-0.5; 40]);
    for len in 1..50 {
        let values = gaussian(len, len as u64);
        assert!(round_trip(spec, &values, Code::Rans, 0).iter().any(|&out| out != 0.0));
    }
}

#[test]
fn a_larger_step_takes_fewer_bytes() {
    let values = heavy(20_000, 3);
    let mut last = usize::MAX;
    for step in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4] {
        let (mut bytes, spec) = (Vec::new(), DeadZone::nearest(step, 0.66).unwrap());
        let shape = Shape::row(values.len());
        spec.encode(&values, shape, Code::Rans, KeyedRng::new(0, 0), &mut bytes);
        assert!(bytes.len() < last);
        last = bytes.len();
    }
}

#[test]
fn chance_has_no_bias_and_the_error_of_the_formula() {
    for step in [0.07f32, 0.4, 2.0] {
        unbiased(stochastic(step), &G8, |i| {
            let fraction = (f64::from(G8[i].abs()) / f64::from(step)).fract();
            f64::from(step).powi(2) * fraction * (1.0 - fraction)
        });
    }
    // QSGD of [3, -4, 0, 0] with 4 levels: the norm is 5, so the step is 1.25 and the variance 0.625.
    let values = [3.0, -4.0, 0.0, 0.0];
    let total = |i: usize| [0.24, 0.16, 0.0, 0.0][i] * 1.5625;
    assert!(((0..4).map(total).sum::<f64>() - 0.625).abs() < 1e-12);
    unbiased(stochastic(1.25), &values, total);
    for seed in 1..50 {
        let out = round_trip(stochastic(1.25), &values, Code::Pack, seed);
        assert!([2.5, 3.75].contains(&out[0]) && [-3.75, -5.0].contains(&out[1]) && out[2] == 0.0);
    }
}

#[test]
fn extremes_stay_finite_and_damage_is_noticed() {
    for spec in [
        QuantizeSpec::DeadZone(DeadZone::default()),
        QuantizeSpec::DeadZone(DeadZone::stochastic(0.5).unwrap()),
        nearest(f32::MAX, 0.5),
        nearest(f32::MAX / 1.7, 0.5),
        nearest(f32::MIN_POSITIVE, 0.66),
        nearest(1e-45, 0.66),
        nearest(f32::NAN, 0.66),
        stochastic(f32::MAX / 3.0),
        stochastic(1e-30),
    ] {
        sizes(spec);
    }
    corruption(QuantizeSpec::DeadZone(DeadZone::default()));
    corruption(QuantizeSpec::DeadZone(DeadZone::stochastic(0.01).unwrap()));
}
