//! The bounds of `docs/reference/compressors.md` that hold for every input, against inputs that were made to pass them.

use crate::*;

/// What a method may leave of the values `v`: the squared error of all, or the error of the value at an index.
enum Bound {
    All(fn(&[f32]) -> f64),
    Each(fn(&[f32], usize) -> f64),
}

fn energy(v: &[f32]) -> f64 {
    dot(v, v)
}

fn largest(v: &[f32]) -> f64 {
    v.iter().fold(0.0, |most, value| most.max(f64::from(value.abs())))
}

/// A bfloat16, rounded up.
fn up(value: f64) -> f64 {
    let bits = (value as f32).to_bits();
    f32::from_bits((bits + 0xffff) & 0xffff_0000)
        .min(f32::from_bits(0x7f7f_0000))
        .into()
}

/// What a projection onto one magnitude leaves.
fn besides_the_mean(v: &[f32], counted: impl Fn(f32) -> bool) -> f64 {
    let kept: Vec<f32> = v.iter().copied().filter(|value| counted(*value)).collect();
    let sum: f64 = kept.iter().map(|value| f64::from(value.abs())).sum();
    energy(v) - sum * sum / kept.len().max(1) as f64
}

const BOUNDS: &[(&str, Bound)] = &[
    (
        "reduce = { top_k = 0.1 }",
        Bound::All(|v| (1.0 - (0.1 * v.len() as f64).ceil().max(1.0) / v.len() as f64) * energy(v)),
    ),
    (
        "reduce = { top_k = { density = 0.1, chunk = 10 } }",
        Bound::All(|v| {
            v.chunks(10)
                .map(|c| (1.0 - (0.1 * c.len() as f64).floor() / c.len() as f64) * energy(c))
                .sum()
        }),
    ),
    (
        "reduce = { threshold = 0.01 }",
        Bound::Each(|v, at| if v[at].abs() < 0.01 { 0.01 } else { 0.0 }),
    ),
    ("reduce = { low_rank = 2 }", Bound::All(energy)),
    ("reduce = { tensor_train = 0.3 }", Bound::All(energy)),
    (
        "quantize = 'half'",
        Bound::Each(|v, at| f64::from(v[at].abs()).max(largest(v) / f64::from(1 << 28)) / 2048.0),
    ),
    ("quantize = 'bf16'", Bound::Each(|v, at| f64::from(v[at].abs()) / 256.0)),
    (
        "quantize = { uniform = 2 }",
        Bound::Each(|v, at| up(largest(v.chunks(1024).nth(at / 1024).unwrap())) / 2.0),
    ),
    (
        "quantize = { uniform = 8 }",
        Bound::Each(|v, at| up(largest(v.chunks(1024).nth(at / 1024).unwrap())) / 254.0),
    ),
    (
        "quantize = { dead_zone = { step = 2 } }",
        Bound::Each(|v, _| 2.0 * (energy(v) / v.len() as f64).sqrt()),
    ),
    (
        "quantize = { dead_zone = { step = 0.01 } }",
        Bound::Each(|v, _| 0.01 * (energy(v) / v.len() as f64).sqrt()),
    ),
    (
        "quantize = 'ternary'",
        Bound::All(|v| besides_the_mean(v, |value| value != 0.0)),
    ),
    ("quantize = 'sign'", Bound::All(|v| besides_the_mean(v, |_| true))),
    (
        "quantize = { sign = 'split' }",
        Bound::All(|v| besides_the_mean(v, |_| true)),
    ),
    ("quantize = { codebook = 1 }", Bound::All(split)),
    ("quantize = { codebook = 4 }", Bound::All(split)),
];

/// What `sign`, split, leaves.
fn split(v: &[f32]) -> f64 {
    let (below, others): (Vec<f32>, Vec<f32>) = v.iter().partition(|value| **value < 0.0);
    besides_the_mean(&below, |_| true) + besides_the_mean(&others, |_| true)
}

/// Inputs of `len` values.
fn adverse(len: usize) -> Vec<(&'static str, Vec<f32>)> {
    let of = |value: fn(usize, usize) -> f32| (0..len).map(|at| value(at, len)).collect::<Vec<f32>>();
    let mut inputs = vec![
        ("zeros", vec![0.0; len]),
        ("denormals", of(|at, _| f32::from_bits(1 + at as u32 * 7919 % 60_000))),
        ("a denormal and zeros", of(|at, _| f32::from_bits(u32::from(at == 0)))),
        ("the least normal", vec![f32::MIN_POSITIVE; len]),
        (
            "the largest",
            of(|at, _| if at % 2 == 0 { f32::MAX } else { -f32::MAX }),
        ),
        (
            "the largest and the least",
            of(|at, _| if at == 1 { 3e38 } else { 1e-45 }),
        ),
        ("one beside zeros", of(|at, len| if at == len - 1 { -5.0 } else { 0.0 })),
        ("positive", of(|at, _| 1.0 + at as f32 * 1e-3)),
        (
            "below a power of two",
            of(|at, _| 2.0 - f32::EPSILON * (1 + at % 3) as f32),
        ),
        (
            "geometric",
            of(|at, _| 0.7f32.powi(at as i32 % 200) * if at % 3 == 0 { -1.0 } else { 1.0 }),
        ),
        ("between levels", of(|at, _| [1.0, 0.5, 0.498, -0.502, 0.0039][at % 5])),
        (
            "near the bin's end",
            of(|at, _| [1.0, 1.3199, 0.6601, 0.6599, -1.66][at % 5]),
        ),
    ];
    inputs.extend(hard(len));
    inputs
}

#[test]
fn no_input_passes_a_bound_of_the_document() {
    for shape in [
        &[1][..],
        &[2],
        &[3],
        &[17],
        &[1024],
        &[1025],
        &[6, 7],
        &[31, 37],
        &[16, 4, 3, 3],
    ] {
        let layout = layout(&[("x", shape)]);
        for (method, bound) in BOUNDS {
            for (name, values) in adverse(layout.len()) {
                let spec = format!("memory = 'error-feedback'\ndefault = {{ {method} }}");
                let out = once(&layout, &spec, &values, 9);
                // Rounding to binary32: relative, and absolute below the least normal number.
                let (relative, absolute) = (1.0 + 1e-6, 1.18e-38);
                let case = format!("{method}, {name}, {shape:?}");
                match bound {
                    Bound::All(bound) => {
                        let (found, bound) = (error(&values, &out), bound(&values));
                        let rounding = 1e-6 * energy(&values) + absolute * absolute * values.len() as f64;
                        assert!(found <= bound + rounding, "{case}: {found:e} above {bound:e}");
                    }
                    Bound::Each(bound) => {
                        for (at, (value, out)) in values.iter().zip(&out).enumerate() {
                            let (found, bound) = ((f64::from(*value) - f64::from(*out)).abs(), bound(&values, at));
                            let most = bound * relative + 1e-6 * f64::from(value.abs()) + absolute;
                            assert!(
                                found <= most,
                                "{case}: {value:e} becomes {out:e}, {found:e} above {bound:e}"
                            );
                        }
                    }
                }
            }
        }
    }
}
