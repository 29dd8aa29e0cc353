//! What keeping the books costs the server in a round: counting on the sockets and of messages, the sections of frames,
//! sample, rows and link, and the rows in the store. It is to be less than 1 % of the processor time that the server
//! spends on the round, which `fl-sim load` measures, with `target/release/fl-sim`: build that first.
//!
//! `cargo build --release -p fl-sim && cargo bench -p fl-server --bench accounting --features internals`

#![allow(clippy::unwrap_used)]

#[path = "../tests/fixtures/long_run.rs"]
mod long_run;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use fl_compress::{Decoded, Encoder, Frame, FrameHeader, FrameKind, Layout, Spec};
use fl_proto::{ClientId, Metered};
use fl_server::disk::Disk;
use fl_server::internals::Books;
use fl_server::ledger::Row;
use fl_server::store::Store;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

const TOP_K: &str = "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }";
const EXACT: &str = "default = {}";
/// As `fl-sim load`: clients, values, codec.
const LOADS: [(usize, usize, &str, &str); 3] = [
    (10, 1_000_000, "top-k", TOP_K),
    (100, 100_000, "top-k", TOP_K),
    (10, 1_000_000, "dense", EXACT),
];
/// Rounds of a load.
const ROUNDS: u32 = 41;
/// Times that each part is measured; the median counts.
const TIMES: usize = 41;

fn main() {
    for (clients, values, codec, spec) in LOADS {
        let names = long_run::names(clients);
        let frame = frame(values, spec);
        let parts = [
            ("counting on the sockets", sockets(&names, frame.len())),
            ("counting of messages", messages(&names, frame.len())),
            ("sections of frames", (clients + 1) as f64 * sections(values, &frame)),
            ("sample, rows, link", close(&names)),
            ("rows in the store", rows_in_store(&names)),
        ];
        println!(
            "{clients} clients, {values} values, {codec}: frames of {} B",
            frame.len()
        );
        parts.iter().for_each(|(what, us)| println!("{us:>10.1} us  {what}"));
        let sum: f64 = parts.iter().map(|part| part.1).sum();
        println!("{sum:>10.1} us  together, in a round");
        match server(clients, values, codec) {
            Some(us) => println!("{us:>10.1} us  of the server in a round: {:.2} %", 100.0 * sum / us),
            None => println!("           target/release/fl-sim is missing or old: what a round takes is not known"),
        }
    }
}

/// Microseconds of processor time that a round takes the server.
fn server(clients: usize, values: usize, codec: &str) -> Option<f64> {
    let program: PathBuf = std::env::current_exe().ok()?.parent()?.parent()?.join("fl-sim");
    let mut load = Command::new(program);
    load.args(["--format", "json", "load", "--codec", codec]);
    load.args(["--clients", &clients.to_string(), "--values", &values.to_string()]);
    let output = load.args(["--rounds", &ROUNDS.to_string()]).output().ok()?;
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(measured["server_cpu"].as_f64()? * 1e6)
}

fn frame(values: usize, spec: &str) -> Vec<u8> {
    let layout = Arc::new(layout(values));
    let mut encoder = Encoder::new(layout, &toml::from_str::<Spec>(spec).unwrap()).unwrap();
    let mut delta: Vec<f32> = (0..values)
        .map(|i| ((i * 7919 % 10_007) as f32 - 5_000.0) * 1e-6)
        .collect();
    let header = FrameHeader {
        kind: FrameKind::Update,
        round: 1,
        seed: 1,
    };
    encoder.encode(&mut delta, header).unwrap().frame
}

fn layout(values: usize) -> Layout {
    Layout::new((0..10).map(|i| (format!("layer{i}.weight"), vec![values / 1_000, 100]))).unwrap()
}

/// What `does` takes, in microseconds.
fn median(mut does: impl FnMut()) -> f64 {
    let mut taken: Vec<f64> = (0..TIMES)
        .map(|_| {
            let begun = Instant::now();
            does();
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken[TIMES / 2]
}

/// Records of TLS that carry a frame both ways, through a meter and without one.
fn sockets(names: &[ClientId], frame: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let stream = [[23, 3, 3, 0x40, 0x11].as_slice(), &[7; 0x4011]]
        .concat()
        .repeat(frame / 0x4000 + 2);
    let books = Books::new(names);
    let metered = median(|| {
        for meter in books.meters() {
            let up = Metered::new(&stream[..frame], Arc::clone(meter));
            let down = Metered::new(tokio::io::sink(), Arc::clone(meter));
            runtime.block_on(both(up, down, &stream[..frame]));
        }
    });
    let plain = median(|| {
        for _ in books.meters() {
            runtime.block_on(both(&stream[..frame], tokio::io::sink(), &stream[..frame]));
        }
    });
    (metered - plain).max(0.0)
}

async fn both(mut up: impl AsyncRead + Unpin, mut down: impl tokio::io::AsyncWrite + Unpin, bytes: &[u8]) {
    let mut buffer = [0; 0x4000];
    while up.read(&mut buffer).await.unwrap() > 0 {
        black_box(&buffer);
    }
    for part in bytes.chunks(0x4000) {
        down.write_all(part).await.unwrap();
    }
}

fn messages(names: &[ClientId], frame: usize) -> f64 {
    let books = Books::new(names);
    median(|| books.count(frame as u64))
}

/// What a frame takes longer if its values are counted and the largest is found.
fn sections(values: usize, frame: &[u8]) -> f64 {
    let layout = layout(values);
    let frame = Frame::parse(frame, &layout).unwrap();
    let mut acc = vec![0.0; layout.len()];
    let mut counts = Decoded::default();
    let counted = median(|| frame.accumulate_to(0.1, &mut acc, 0, &mut counts).unwrap());
    let plain = median(|| frame.accumulate(0.1, &mut acc).unwrap());
    (counted - plain).max(0.0)
}

fn close(names: &[ClientId]) -> f64 {
    let mut books = Books::new(names);
    let (records, rows) = (long_run::records(1, names).concat(), long_run::rows(1, names));
    let sections: Vec<Row> = rows.into_iter().take(2).collect();
    median(|| {
        books.count(1);
        drop(black_box(books.close(1, &records, sections.clone())));
    })
}

/// What a commit takes longer if rows are in it.
fn rows_in_store(names: &[ClientId]) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let run = Store::open(dir.path(), Disk::default())
        .unwrap()
        .run(&"run".parse().unwrap())
        .unwrap();
    let [_, last] = long_run::records(1, names);
    let rows: Vec<Vec<u8>> = long_run::rows(1, names).iter().map(Row::to_bytes).collect();
    let with = median(|| run.append(&last, &rows).unwrap());
    let without = median(|| run.append(&last, &[]).unwrap());
    (with - without).max(0.0)
}
