//! Laws of the methods through the public interface: a TOML spec, encoders and frames. Tests of single kernels are in
//! their modules.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bounds;
mod budget;
mod contraction;
mod document;
mod equal_bytes;
mod low_rank;
mod memory;
mod small;
mod sparse;
mod threads;
mod unbiased;

use std::sync::Arc;

use fl_compress::*;

const UPDATE: FrameHeader = FrameHeader {
    kind: FrameKind::Update,
    round: 1,
    seed: 42,
};

fn layout(tensors: &[(&str, &[usize])]) -> Arc<Layout> {
    Arc::new(Layout::new(tensors.iter().map(|(name, shape)| (*name, shape.to_vec()))).unwrap())
}

fn row(len: usize) -> Arc<Layout> {
    layout(&[("x", &[len])])
}

fn encoder(layout: &Arc<Layout>, spec: &str) -> Encoder {
    let parsed = toml::from_str(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    Encoder::new(Arc::clone(layout), &parsed).unwrap()
}

fn decode(layout: &Layout, frame: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; layout.len()];
    Frame::parse(frame, layout).unwrap().decode(&mut out).unwrap();
    out
}

/// The decoded first frame.
fn once(layout: &Arc<Layout>, spec: &str, values: &[f32], seed: u64) -> Vec<f32> {
    let pending = encoder(layout, spec).encode(&mut values.to_vec(), FrameHeader { seed, ..UPDATE });
    decode(layout, &pending.unwrap().frame)
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

fn less(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// Squared Euclidean distance.
fn error(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2))
        .sum()
}

/// Uniform in (0, 1).
fn unit(seed: u64, at: usize) -> f64 {
    let mut x = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 11) as f64 / 9_007_199_254_740_992.0 + 1e-17
}

fn laplace(len: usize, seed: u64) -> Vec<f32> {
    let sign = |at: usize| if unit(seed, at + len) < 0.5 { -1e-3 } else { 1e-3 };
    (0..len).map(|at| (-unit(seed, at).ln() * sign(at)) as f32).collect()
}

/// Vectors that are hard to compress for different reasons.
fn hard(len: usize) -> Vec<(&'static str, Vec<f32>)> {
    let mut spike = vec![1e-4; len];
    spike[len / 2] = -7.0;
    let sparse = laplace(len, 3).into_iter().enumerate();
    let sparse = sparse.map(|(at, value)| if at % 9 == 0 { value } else { 0.0 });
    vec![
        ("laplace", laplace(len, 1)),
        ("equal", vec![-0.3; len]),
        ("spike", spike),
        ("sparse", sparse.collect()),
        ("heavy", laplace(len, 2).iter().map(|v| v * v * v * 1e6).collect()),
    ]
}
