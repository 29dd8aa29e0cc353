//! Without memory, compressors must be unbiased: `E C(v) = v` and `E |C(v) - v|^2 = omega |v|^2`.

use crate::*;

const DRAWS: u32 = 4000;
const N: usize = 64;

/// Odd multiples of 1/64 below one. The largest is representable in bfloat16, and none is so small that it is hardly
/// ever drawn.
fn values() -> Vec<f32> {
    (0..N).map(|at| ((at * 37 % N) as f32 - 31.5) / 32.0).collect()
}

/// Checks over 4000 seeds that each mean is within five standard deviations; returns the mean squared error over
/// `|v|^2`.
fn without_bias(method: &str, code: &str) -> f64 {
    let (layout, values) = (row(N), values());
    let mut encoder = encoder(&layout, &format!("default = {{ {method}, code = '{code}' }}"));
    let (mut sums, mut squares) = (vec![0.0; N], vec![0.0; N]);
    for seed in 0..DRAWS {
        let header = FrameHeader {
            seed: seed.into(),
            ..UPDATE
        };
        let pending = encoder.encode(&mut values.clone(), header).unwrap();
        encoder.settle(&pending, Ack::Rejected).unwrap();
        for ((sum, square), (out, value)) in sums
            .iter_mut()
            .zip(&mut squares)
            .zip(decode(&layout, &pending.frame).iter().zip(&values))
        {
            let off = f64::from(*out) - f64::from(*value);
            *sum += off;
            *square += off * off;
        }
    }
    let draws = f64::from(DRAWS);
    for ((sum, square), value) in sums.iter().zip(&squares).zip(&values) {
        let deviation = (square / draws).sqrt() / draws.sqrt();
        assert!(
            (sum / draws).abs() <= 5.0 * deviation + 1e-6,
            "{method}: {value} is off by {}",
            sum / draws
        );
    }
    squares.iter().sum::<f64>() / draws / dot(&values, &values)
}

#[test]
fn without_memory_the_mean_is_the_value() {
    for (method, omega) in [
        ("reduce = { random_k = 0.25 }", 3.0),
        ("reduce = { projection = 0.25 }", 63.0 / 16.0),
        (
            "reduce = { count_sketch = { density = 0.25, rows = 1, top = 1 } }",
            63.0 / 16.0,
        ),
    ] {
        let error = without_bias(method, "pack");
        assert!(
            (error / omega - 1.0).abs() < 0.05,
            "{method}: {error} instead of {omega}"
        );
    }
}

#[test]
fn chance_in_one_slot_owes_nothing_to_that_in_another() {
    for method in [
        "reduce = { random_k = 0.25 }, quantize = { uniform = { bits = 3, rounding = 'stochastic', block = 16 } }",
        "reduce = { random_k = 0.5 }, quantize = { ternary = { rounding = 'stochastic' } }",
        "reduce = { random_k = 0.5 }, quantize = 'natural'",
        "reduce = { projection = 0.25 }, quantize = { dead_zone = { step = 1, rounding = 'stochastic' } }",
    ] {
        without_bias(method, "rans");
    }
}

/// `E (C(v) - v)^2 = (c / m)^2 f (1 - f)`, f the fraction of `m |v| / c`.
#[test]
fn uniform_chance_has_the_error_of_the_formula() {
    let values = values();
    let square = dot(&values, &values);
    // Rounds the norm up to a bfloat16.
    let up = |norm: f64| f64::from(f32::from_bits(((norm as f32).to_bits() + 0xffff) & 0xffff_0000));
    for (norm, scale) in [("max", up(63.0 / 64.0)), ("l2", up(square.sqrt()))] {
        for (bits, levels) in [(2, 1.0), (3, 3.0), (5, 15.0)] {
            let method =
                format!("quantize = {{ uniform = {{ bits = {bits}, rounding = 'stochastic', norm = '{norm}' }} }}");
            let of = |value: &f32| {
                let fraction = (f64::from(value.abs()) / scale * levels).fract();
                (scale / levels).powi(2) * fraction * (1.0 - fraction)
            };
            let expected = values.iter().map(of).sum::<f64>() / square;
            let error = without_bias(&method, "pack");
            assert!(
                (error / expected - 1.0).abs() < 0.05,
                "{method}: {error} instead of {expected}"
            );
        }
    }
}
