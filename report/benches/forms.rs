//! The forms of a report of 1,000 rounds and 100 clients: each is to be well under a second.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/e2e/fixtures.rs"]
mod fixtures;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use fl_report::{Filter, Query, csv, json, parquet, table_text, tensorboard, text};

fn forms(c: &mut Criterion) {
    let report = fixtures::made(1_000, &fixtures::names(100), 1);
    let all = Filter::default();
    let lines = || report.table(Query::named("participation").unwrap(), &all).unwrap();
    let mut group = c.benchmark_group("1000 rounds x 100 clients");
    group.sample_size(10);
    group.bench_function("text", |b| b.iter(|| text(black_box(&report))));
    group.bench_function("json", |b| b.iter(|| json(black_box(&report)).unwrap()));
    let written = json(&report).unwrap();
    group.bench_function("json read", |b| {
        b.iter(|| serde_json::from_str::<fl_report::Report>(black_box(&written)).unwrap());
    });
    group.bench_function("participations text", |b| b.iter(|| table_text(&lines())));
    group.bench_function("participations csv", |b| b.iter(|| csv(&lines()).unwrap()));
    group.bench_function("participations parquet", |b| {
        b.iter(|| parquet(&report.run, "participation", &lines()).unwrap());
    });
    group.bench_function("tensorboard", |b| b.iter(|| tensorboard(black_box(&report))));
    group.finish();
}

criterion_group!(benches, forms);
criterion_main!(benches);
