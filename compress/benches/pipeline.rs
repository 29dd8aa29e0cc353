//! Whole frames of ten million values on one thread, beside a copy of the same values.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fl_compress::{Encoder, Frame, FrameHeader, FrameKind, Layout, Spec, Verdict, snapshot};

const LEN: usize = 10_000_000;
const HEADER: FrameHeader = FrameHeader {
    kind: FrameKind::Update,
    round: 1,
    seed: 1,
};

/// Heavy-tailed values on four layers of different scale.
fn update() -> Vec<f32> {
    let mut state = 1u64;
    let mut unit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0
    };
    (0..LEN)
        .map(|i| (unit() - 0.5) / (unit() + 0.05) * (1 << (i * 4 / LEN)) as f32 * 1e-3)
        .collect()
}

fn layout() -> Arc<Layout> {
    let tensors = (0..4).map(|layer| (format!("layer{layer}"), vec![LEN / 4]));
    Arc::new(Layout::new(tensors).expect("ten million values are within every limit"))
}

fn spec(text: &str) -> Spec {
    toml::from_str(text).expect("a spec of this file")
}

fn pipeline(criterion: &mut Criterion) {
    let (layout, update) = (layout(), update());
    let mut group = criterion.benchmark_group("10M values");
    group
        .throughput(Throughput::Bytes(LEN as u64 * 4))
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));

    let mut copy = vec![1.0; LEN];
    group.bench_function("copy", |bencher| {
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&update)))
    });

    group.bench_function("copy into fresh memory", |bencher| {
        bencher.iter(|| black_box(&update).to_vec())
    });

    for (name, text) in [
        ("exact", "default = {}"),
        (
            "top-k 1 %, 4 bits, rans",
            "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }",
        ),
        (
            "4 bits, rans",
            "default = { quantize = { uniform = 4 }, code = 'rans' }",
        ),
        ("half, pack", "default = { quantize = 'half' }"),
    ] {
        for memory in ["none", "error-feedback"] {
            let spec = spec(&format!("memory = '{memory}'\n{text}"));
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).expect("any layout will do");
            let mut delta = vec![0.0; LEN];
            group.bench_function(format!("encode {name}, {memory}"), |bencher| {
                bencher.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        delta.copy_from_slice(&update);
                        let start = Instant::now();
                        let pending = encoder.encode(&mut delta, HEADER).expect("a finite update");
                        spent += start.elapsed();
                        encoder.settle(&pending, Verdict::Accepted).expect("just encoded");
                    }
                    spent
                });
            });
        }
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(text)).expect("any layout will do");
        let frame = encoder
            .encode(&mut update.clone(), HEADER)
            .expect("a finite update")
            .frame;
        let mut acc = vec![0.0; LEN];
        group.bench_function(format!("parse and accumulate {name}"), |bencher| {
            bencher.iter(|| Frame::parse(&frame, &layout).and_then(|frame| frame.accumulate(0.1, &mut acc)));
        });
    }

    group.bench_function("snapshot", |bencher| bencher.iter(|| snapshot(&layout, &update, 1)));
    let frame = snapshot(&layout, &update, 1).expect("a finite model");
    let mut model = vec![0.0; LEN];
    group.bench_function("parse and decode snapshot", |bencher| {
        bencher.iter(|| Frame::parse(&frame, &layout).and_then(|frame| frame.decode(&mut model)));
    });
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
