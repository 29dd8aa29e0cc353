//! Whole frames of ten million values, compared with a copy of the same values.

mod data;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use data::{COLS, LEN, heavy, laplace, matrix};
use fl_compress::{Ack, Encoder, Frame, FrameHeader, FrameKind, Layout, Pending, Spec, snapshot};

const HEADER: FrameHeader = FrameHeader {
    kind: FrameKind::Update,
    round: 1,
    seed: 1,
};

const TOP_K: &str = "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }";

/// Ten million values in layers of equal shape.
fn layout(layers: usize) -> Arc<Layout> {
    let tensors = (0..layers).map(|layer| (format!("layer{layer}"), vec![LEN / COLS / layers, COLS]));
    Arc::new(Layout::new(tensors).expect("ten million values are within every limit"))
}

fn encoder(layers: usize, text: &str, threads: usize) -> Encoder {
    let spec: Spec = toml::from_str(text).expect("a valid spec");
    let mut encoder = Encoder::new(layout(layers), &spec).expect("valid for every layout");
    encoder.set_threads(threads);
    encoder
}

/// Rotates the rows of each quarter by an offset that depends on the round: a different update with the same
/// distribution.
fn next_update(update: &[f32], round: usize, out: &mut [f32]) {
    let at = round * 487 * COLS % (LEN / 4);
    for (out, update) in out.chunks_mut(LEN / 4).zip(update.chunks(LEN / 4)) {
        out[LEN / 4 - at..].copy_from_slice(&update[..at]);
        out[..LEN / 4 - at].copy_from_slice(&update[at..]);
    }
}

/// Encodes frame after frame, all accepted. Measures only the encoding.
fn encode(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, update: &[f32], mut encoder: Encoder) -> Pending {
    let mut delta = vec![0.0; LEN];
    let (mut last, mut round) = (None, 0);
    let mut once = |spent: &mut Duration| {
        next_update(update, round, &mut delta);
        round += 1;
        let start = Instant::now();
        let pending = encoder.encode(&mut delta, HEADER).expect("a finite update");
        *spent += start.elapsed();
        encoder.settle(&pending, Ack::Accepted).expect("just encoded");
        pending
    };
    let mut first = Duration::ZERO;
    once(&mut first);
    group.bench_function(format!("encode {name}"), |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            (0..rounds).for_each(|_| last = Some(once(&mut spent)));
            spent
        });
    });
    let pending = last.unwrap_or_else(|| once(&mut first));
    let bits = pending.frame.len() as f64 * 8.0 / LEN as f64;
    println!("{name}: {bits:.4} bits a value; first frame {first:.1?}");
    pending
}

fn accumulate(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, layers: usize, frame: &[u8]) {
    let (layout, mut acc) = (layout(layers), vec![0.0; LEN]);
    group.bench_function(format!("parse and accumulate {name}"), |bencher| {
        bencher.iter(|| Frame::parse(frame, &layout).and_then(|frame| frame.accumulate(0.1, &mut acc)));
    });
}

fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .throughput(Throughput::Bytes(LEN as u64 * 4))
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    group
}

fn copies(group: &mut BenchmarkGroup<'_, WallTime>, update: &[f32]) {
    let mut copy = vec![1.0; LEN];
    group.bench_function("copy", |bencher| {
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(update)))
    });
    group.bench_function("copy into fresh memory", |bencher| {
        bencher.iter(|| black_box(update).to_vec())
    });
}

fn frames(criterion: &mut Criterion) {
    let update = heavy();
    let mut group = group(criterion, "10M values");
    copies(&mut group, &update);
    for (name, text) in [
        ("exact", "default = {}"),
        ("top-k 1 %, 4 bits, rans", TOP_K),
        (
            "4 bits, rans",
            "default = { quantize = { uniform = 4 }, code = 'rans' }",
        ),
        ("half, pack", "default = { quantize = 'half' }"),
    ] {
        for memory in ["none", "error-feedback"] {
            let encoder = encoder(4, &format!("memory = '{memory}'\n{text}"), 1);
            let pending = encode(&mut group, &format!("{name}, {memory}"), &update, encoder);
            if memory == "none" {
                accumulate(&mut group, name, 4, &pending.frame);
            }
        }
    }
    let layout = layout(4);
    group.bench_function("snapshot", |bencher| bencher.iter(|| snapshot(&layout, &update, 1)));
    let frame = snapshot(&layout, &update, 1).expect("a finite model");
    let mut model = vec![0.0; LEN];
    group.bench_function("parse and decode snapshot", |bencher| {
        bencher.iter(|| Frame::parse(&frame, &layout).and_then(|frame| frame.decode(&mut model)));
    });
}

/// The top-k chain with error feedback by number of threads, for several tensors and for one; and the number of
/// nonzeros of its frame.
fn threads(criterion: &mut Criterion) {
    let update = heavy();
    let mut group = group(criterion, "top-k 1 %, 4 bits, rans, error feedback");
    copies(&mut group, &update);
    for layers in [4, 1] {
        for threads in [1, 2] {
            let encoder = encoder(layers, &format!("memory = 'error-feedback'\n{TOP_K}"), threads);
            let name = format!("{layers} tensors, {threads} threads");
            let pending = encode(&mut group, &name, &update, encoder);
            if threads == 1 {
                group.throughput(Throughput::Elements(LEN as u64 / 100));
                accumulate(&mut group, &name, layers, &pending.frame);
                group.throughput(Throughput::Bytes(LEN as u64 * 4));
            }
        }
    }
}

/// A dead zone with context coding at a quarter of a bit per parameter.
fn quarter_bit(criterion: &mut Criterion) {
    let mut group = group(criterion, "dead zone, context, 0.25 bits");
    group.throughput(Throughput::Elements(LEN as u64));
    for (name, values, step) in [("Laplace", laplace(), 3.6), ("matrix", matrix(), 1.85)] {
        let default =
            |step: f64| format!("default = {{ quantize = {{ dead_zone = {{ step = {step} }} }}, code = 'context' }}");
        let budget = format!("budget = '0.25 bits'\n{}", default(2.0));
        for (how, text) in [("step", default(step)), ("budget", budget)] {
            for memory in ["none", "error-feedback"] {
                let encoder = encoder(4, &format!("memory = '{memory}'\n{text}"), 1);
                let what = format!("{name}, {how}, {memory}");
                let pending = encode(&mut group, &what, &values, encoder);
                if memory == "none" {
                    accumulate(&mut group, &what, 4, &pending.frame);
                }
            }
        }
    }
}

criterion_group!(benches, frames, threads, quarter_bit);
criterion_main!(benches);
