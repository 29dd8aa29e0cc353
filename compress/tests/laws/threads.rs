//! Results do not depend on the number of threads.

use crate::*;

#[test]
fn any_number_of_threads_makes_the_same_frames() {
    let layout = layout(&[
        ("a", &[300, 200]),
        ("b", &[7]),
        ("c", &[20, 30, 9]),
        ("d", &[70_001]),
        ("e", &[5]),
    ]);
    for spec in [
        "budget = '0.25 bits'\nmemory = 'error-feedback'\ndefault = { quantize = 'dead_zone', code = 'context' }",
        "memory = 'error-feedback'\ndefault = { reduce = { top_k = 0.02 }, quantize = { uniform = 4 }, code = 'auto' }
            small = { below = 100, use = {} }",
        "memory = 'dgc'\ndefault = { reduce = { low_rank = { rank = 2, remainder = 0.01 } }, quantize = 'half' }",
        "default = { quantize = { rotated = 2 } }",
    ] {
        let mut encoders = [1, 2, 5].map(|threads| {
            let mut encoder = encoder(&layout, spec);
            encoder.set_threads(threads);
            encoder
        });
        for round in 0..3 {
            let frames = encoders.each_mut().map(|encoder| {
                let header = FrameHeader { round, ..UPDATE };
                let pending = encoder.encode(&mut laplace(layout.len(), round), header).unwrap();
                encoder.settle(&pending, Ack::Accepted).unwrap();
                pending.frame
            });
            assert!(frames.iter().all(|frame| *frame == frames[0]), "{spec}");
        }
        let residuals = encoders.each_ref().map(Encoder::residual);
        assert!(residuals.iter().all(|residual| *residual == residuals[0]), "{spec}");
    }
}
