//! Kernels on ten million values, on one thread.

mod data;

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use data::{COLS, LEN, heavy, laplace, matrix, units};
use fl_compress::Code;
use fl_compress::internals::bench::{self, Histogram};

fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .throughput(Throughput::Elements(LEN as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(2));
    group
}

fn values(criterion: &mut Criterion) {
    let (mut group, values) = (group(criterion, "values"), heavy());
    let mut copy = vec![1.0; LEN];
    group.bench_function("copy", |bencher| {
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&values)))
    });
    for density in [0.001, 0.01, 0.1] {
        group.bench_function(format!("top-k {density}"), |bencher| {
            bencher.iter(|| bench::top_k(1, black_box(&values), (LEN as f64 * density) as usize))
        });
    }
    group.bench_function("histogram", |bencher| {
        bencher.iter(|| Histogram::new(black_box(&values)))
    });
    let mut levels = vec![0; LEN];
    group.bench_function("dead zone", |bencher| {
        bencher.iter(|| bench::dead_zone(black_box(&values), 3e-3, 0.66, &mut levels))
    });
    group.bench_function("Hadamard by 65536", |bencher| {
        bencher.iter(|| copy.chunks_exact_mut(1 << 16).for_each(bench::hadamard))
    });
    group.finish();

    let histogram = Histogram::new(&values);
    criterion.bench_function("estimate of a step", |bencher| {
        bencher.iter(|| histogram.estimate(black_box(3e-3), 0.66))
    });
}

/// Geometric distribution around the middle, as 4-bit quantization produces; 2.9 bits of entropy per symbol.
fn symbols() -> Vec<u8> {
    let mut unit = units();
    (0..LEN)
        .map(|_| {
            let far = (-3.0 * (1.0 - unit()).ln()) as i32;
            (7 + if unit() < 0.5 { far } else { -far }).clamp(0, 14) as u8
        })
        .collect()
}

fn codes(criterion: &mut Criterion) {
    let mut group = group(criterion, "4-bit symbols");
    let symbols = symbols();
    for code in [Code::Pack, Code::Rans, Code::Huffman, Code::Rice, Code::Context] {
        let (mut bytes, mut out) = (Vec::new(), vec![0; LEN]);
        group.bench_function(format!("encode {code:?}"), |bencher| {
            bencher.iter(|| {
                bytes.clear();
                bench::encode_symbols(&symbols, 4, code, &mut bytes);
            })
        });
        bytes.clear();
        bench::encode_symbols(&symbols, 4, code, &mut bytes);
        group.bench_function(format!("decode {code:?}"), |bencher| {
            bencher.iter(|| assert!(bench::decode_symbols(&bytes, 4, code, &mut out)))
        });
        assert!(out == symbols);
    }
}

/// Levels of a step at which the context coder needs about a quarter of a bit per value.
fn levels(criterion: &mut Criterion) {
    let mut group = group(criterion, "levels");
    for (name, values, step) in [("Laplace", laplace(), 5.1e-3), ("matrix", matrix(), 14e-3)] {
        let mut levels = vec![0; LEN];
        bench::dead_zone(&values, step, 0.66, &mut levels);
        for code in [Code::Context, Code::Rans] {
            let (mut bytes, mut out) = (Vec::new(), vec![0; LEN]);
            bench::encode_levels(&levels, COLS, code, &mut bytes);
            println!(
                "{name}, {code:?}: {:.4} bits per value",
                bytes.len() as f64 * 8.0 / LEN as f64
            );
            group.bench_function(format!("encode {name}, {code:?}"), |bencher| {
                bencher.iter(|| {
                    bytes.clear();
                    bench::encode_levels(&levels, COLS, code, &mut bytes);
                })
            });
            group.bench_function(format!("decode {name}, {code:?}"), |bencher| {
                bencher.iter(|| assert!(bench::decode_levels(&bytes, COLS, code, &mut out)))
            });
            assert!(out == levels);
        }
    }
}

criterion_group!(benches, values, codes, levels);
criterion_main!(benches);
