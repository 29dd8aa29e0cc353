//! Frames and residuals do not depend on the number of threads.

use std::sync::Arc;

use fl_compress::*;

/// Enough values to split the work within the first tensor.
fn layout() -> Arc<Layout> {
    let tensors = [("a", vec![400, 500]), ("b", vec![30, 40]), ("c", vec![7])];
    Arc::new(Layout::new(tensors).unwrap())
}

fn update(len: usize, round: u64) -> Vec<f32> {
    let mut state = round + 1;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / 16_777_216.0
    };
    (0..len).map(|_| (unit() - 0.5) / (unit() + 0.05)).collect()
}

#[test]
fn frames_and_residuals_do_not_depend_on_the_number_of_threads() {
    let layout = layout();
    for text in [
        "default = { reduce = { top_k = 0.15 }, quantize = { uniform = 4 }, code = 'rans' }",
        "default = { reduce = { top_k = 0.01 }, quantize = 'half', code = 'context' }",
        "default = { quantize = 'dead_zone', code = 'context' }",
        "budget = '0.5 bits'\ndefault = { quantize = 'dead_zone', code = 'rans' }\nsmall = { below = 100, use = { quantize = 'half' } }",
    ] {
        let spec: Spec = toml::from_str(&format!("memory = 'error-feedback'\n{text}")).unwrap();
        let encoder = |threads| {
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            encoder.set_threads(threads);
            encoder
        };
        let (mut one, mut others) = (encoder(1), [2, 3, 8].map(encoder));
        for round in 0..3 {
            let header = FrameHeader {
                kind: FrameKind::Update,
                round,
                seed: 5,
            };
            let delta = update(layout.len(), round);
            let input: Vec<f32> = delta.iter().zip(one.residual().unwrap()).map(|(a, b)| a + b).collect();
            let pending = one.encode(&mut delta.clone(), header).unwrap();
            // The residual is the input minus the decoded frame, bit for bit.
            let mut left = input;
            let frame = Frame::parse(&pending.frame, &layout).unwrap();
            frame.accumulate(-1.0, &mut left).unwrap();
            assert!(bits(&left) == bits(one.residual().unwrap()), "{text}");
            for other in &mut others {
                assert!(other.encode(&mut delta.clone(), header).unwrap() == pending, "{text}");
                assert!(bits(other.residual().unwrap()) == bits(&left), "{text}");
                other.settle(&pending, Ack::Accepted).unwrap();
            }
            one.settle(&pending, Ack::Accepted).unwrap();
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
