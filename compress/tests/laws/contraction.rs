//! With memory, compressors must be contractions: `|C(v) - v|^2 <= (1 - delta) |v|^2`, and for projections `<v, C(v)> =
//! |C(v)|^2`.

use crate::*;

const N: usize = 600;

fn norm_1(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(value.abs())).sum()
}

#[test]
fn every_method_with_memory_comes_nearer() {
    let layout = layout(&[("x", &[20, 30])]);
    for (method, delta) in [
        ("reduce = { top_k = 0.05 }", 0.05),
        ("reduce = { top_k = { density = 0.05, chunk = 100 } }", 0.05),
        ("reduce = { threshold = { sampled = 0.05 } }", 0.0),
        (
            "reduce = { top_k = { density = { by = 'entropy', form = 'percentile', q = 90 } } }",
            0.0,
        ),
        ("reduce = { top_k = { density = { by = 'fisher', clip = 0.01 } } }", 0.0),
        ("reduce = { random_k = 0.05 }", 0.0),
        ("reduce = { low_rank = 3 }", 0.0),
        ("reduce = { low_rank = { rank = 3, remainder = 0.02 } }", 0.02),
        ("reduce = { tensor_train = 0.3 }", 0.0),
        ("reduce = { count_sketch = 0.3 }", 0.0),
        (
            "reduce = { count_sketch = { density = 0.3, rows = 3, top = 0.1 } }",
            0.0,
        ),
        ("quantize = 'half'", 0.99),
        ("quantize = 'bf16'", 0.99),
        ("quantize = { uniform = 4 }", 0.0),
        ("quantize = 'dead_zone'", 0.0),
        ("quantize = { dead_zone = { step = 8, threshold = 1 } }", 0.0),
        ("quantize = 'ternary'", 0.0),
        ("quantize = 'sign'", 0.0),
        ("quantize = { sign = 'split' }", 0.0),
        ("quantize = { codebook = 1 }", 0.0),
        ("quantize = { codebook = 2 }", 0.0),
        ("quantize = { rotated = 1 }", 0.3),
        ("quantize = { rotated = 4 }", 0.9),
        ("reduce = { top_k = 0.05 }, quantize = 'sign'", 0.0),
        ("reduce = { top_k = 0.05 }, quantize = { uniform = 3 }", 0.0),
        ("reduce = { low_rank = 3 }, quantize = 'half'", 0.0),
        ("reduce = { tensor_train = 0.3 }, quantize = 'half'", 0.0),
    ] {
        for (name, values) in hard(N) {
            for code in ["pack", "auto"] {
                let spec = format!("memory = 'error-feedback'\ndefault = {{ {method}, code = '{code}' }}");
                let out = once(&layout, &spec, &values, 5);
                let (left, whole) = (error(&values, &out), dot(&values, &values));
                assert!(
                    left <= (1.0 - delta) * whole * (1.0 + 1e-6),
                    "{method} of {name}: {left} of {whole}"
                );
            }
        }
    }
}

#[test]
fn a_random_method_with_memory_comes_nearer_in_the_mean() {
    let (layout, values) = (row(N), laplace(N, 4));
    // delta is 1/4 for random-k of a quarter, and 1 / (1 + omega) for a projection to 150 sums.
    for (reduce, delta) in [
        ("random_k = 0.25", 0.25),
        ("projection = 0.25", 150.0 / (150.0 + 599.0)),
    ] {
        let spec = format!("memory = 'cafe'\ndefault = {{ reduce = {{ {reduce} }} }}");
        let errors = (0..500).map(|seed| error(&values, &once(&layout, &spec, &values, seed)));
        let mean = errors.sum::<f64>() / 500.0 / dot(&values, &values);
        assert!((mean / (1.0 - delta) - 1.0).abs() < 0.05, "{reduce}: {mean}");
    }
}

#[test]
fn projections_lose_what_is_at_right_angles() {
    let layout = layout(&[("x", &[20, 30])]);
    for method in [
        "reduce = { top_k = 0.1 }",
        "reduce = { low_rank = 3 }",
        "reduce = { tensor_train = 0.3 }",
        "quantize = 'sign'",
        "quantize = { sign = 'split' }",
        "quantize = 'ternary'",
        "quantize = { rotated = 2 }",
        "quantize = { codebook = 2 }",
        "reduce = { top_k = { density = 0.1, chunk = 64 } }, quantize = { codebook = 2 }",
        "reduce = { top_k = 0.1 }, quantize = 'sign'",
    ] {
        for (name, values) in hard(N) {
            let out = once(&layout, &format!("default = {{ {method} }}"), &values, 3);
            let (cross, square) = (dot(&values, &out), dot(&out, &out));
            assert!(
                (cross - square).abs() <= 1e-5 * square,
                "{method} of {name}: {cross} {square}"
            );
        }
    }
}

#[test]
fn signs_come_as_near_as_their_mean_magnitude_does() {
    for (name, values) in hard(N) {
        let bound = 1.0 - norm_1(&values).powi(2) / (N as f64 * dot(&values, &values));
        let relative = |sign| {
            let spec = format!("default = {{ quantize = {{ sign = '{sign}' }} }}");
            error(&values, &once(&row(N), &spec, &values, 1)) / dot(&values, &values)
        };
        assert!((relative("shared") - bound).abs() < 1e-5, "{name}");
        assert!(relative("split") <= bound + 1e-5, "{name}");
    }
}

/// A value at a level other than zero and one is off by at most theta steps, as in `floor(x + 1 - theta)`.
#[test]
fn a_dead_zone_bounds_the_error_of_each_value() {
    let values = laplace(5000, 6);
    let rms = (dot(&values, &values) / 5000.0).sqrt();
    for (step, theta) in [(0.3, 0.5), (0.5, 0.66), (1.0, 0.8), (2.0, 1.0)] {
        let spec = format!("default = {{ quantize = {{ dead_zone = {{ step = {step}, threshold = {theta} }} }} }}");
        let (out, width) = (once(&row(5000), &spec, &values, 0), step * rms);
        for (value, out) in values.iter().zip(&out) {
            let (level, off) = (f64::from(out.abs()) / width, f64::from((value - out).abs()) / width);
            let most = if level == 0.0 || level > 1.5 { theta } else { 1.0 };
            assert!(off <= most + 1e-4, "{value} became {out}: {off} steps");
        }
    }
}
