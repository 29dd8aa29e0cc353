//! Laws of low-rank compression over several frames.

use crate::*;

const SHAPE: [usize; 2] = [24, 31];

/// Rows and columns of different scale, plus noise.
fn matrix() -> Vec<f32> {
    let noise = laplace(24 * 31, 1);
    (0..24 * 31)
        .map(|at| noise[at] * 300.0 / (1 + at / 31 % 7) as f32 + 3.0 / ((1 + at / 31) * (1 + at % 31)) as f32)
        .collect()
}

fn send(encoder: &mut Encoder, values: &[f32], round: u64) -> Vec<f32> {
    let pending = encoder
        .encode(&mut values.to_vec(), FrameHeader { round, ..UPDATE })
        .unwrap();
    encoder.settle(&pending, Ack::Accepted).unwrap();
    decode(&layout(&[("x", &SHAPE)]), &pending.frame)
}

#[test]
fn a_warm_start_only_comes_nearer_and_survives_a_restart() {
    let (layout, values) = (layout(&[("x", &SHAPE)]), matrix());
    let spec = "default = { reduce = { low_rank = 3 } }";
    let mut encoder = encoder(&layout, spec);
    let mut last = f64::INFINITY;
    let mut first = 0.0;
    for round in 0..30 {
        let left = error(&values, &send(&mut encoder, &values, round));
        assert!(left <= last * (1.0 + 1e-6), "{left} after {last}");
        (first, last) = (if round == 0 { left } else { first }, left);
    }
    assert!(last < 0.95 * first, "{first} became {last}");
    let mut saved = Vec::new();
    encoder.save(None, &mut saved);
    let (mut again, _) = Encoder::load(layout, &toml::from_str(spec).unwrap(), &saved).unwrap();
    assert_eq!(send(&mut again, &values, 30), send(&mut encoder, &values, 30));
}

#[test]
fn the_remainder_is_the_largest_of_what_the_factors_leave() {
    let (layout, values) = (layout(&[("x", &SHAPE)]), matrix());
    for quantize in ["exact", "half"] {
        let spec =
            |reduce: &str| format!("default = {{ reduce = {{ low_rank = {reduce} }}, quantize = '{quantize}' }}");
        let plain = once(&layout, &spec("3"), &values, 4);
        let whole = once(&layout, &spec("{ rank = 3, remainder = 0.05 }"), &values, 4);
        let left = less(&values, &plain);
        let sent = less(&whole, &plain);
        let places: Vec<usize> = (0..left.len()).filter(|&at| sent[at] != 0.0).collect();
        assert_eq!(places.len(), 38, "one in twenty, rounded up");
        let least = places.iter().map(|&at| left[at].abs()).fold(f32::MAX, f32::min);
        assert!((0..left.len()).all(|at| sent[at] != 0.0 || left[at].abs() <= least));
        let largest = places.iter().map(|&at| left[at].abs()).fold(0.0, f32::max);
        assert!(places.iter().all(|&at| (sent[at] - left[at]).abs() <= largest / 1000.0));
    }
}

#[test]
fn a_rank_that_saves_nothing_sends_all() {
    let layout = layout(&[("bias", &[30]), ("x", &[6, 7])]);
    let values = laplace(72, 5);
    // Rank 4 would need 4 * (6 + 7) numbers for 42 values.
    assert_eq!(
        once(&layout, "default = { reduce = { low_rank = 4 } }", &values, 0),
        values
    );
}
