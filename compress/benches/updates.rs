//! Speed, bytes and error of a codec on real updates, frame after frame of one encoder.
//!
//! ```text
//! fl-sim update configs/experiments/fashion-cnn.toml cnn-1.safetensors --after 1      # and 2, 3, ..
//! cargo bench -p fl-compress --bench updates -- [--spec S.toml] [--threads N] [--repeat N] [--encode-only] cnn-1.safetensors cnn-2.safetensors ..
//! ```
//!
//! The updates are those of successive rounds. Times are CPU times of the thread (wall times with `--threads`), medians of the
//! repetitions, each with a new encoder; the copy is of the same values in the same repetition. "later" is the mean of all
//! frames but the first.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fl_compress::weights::Weights;
use fl_compress::{Ack, Encoder, Frame, FrameHeader, FrameKind, Layout, Spec};
use rustix::time::{ClockId, clock_gettime};

/// Times of one repetition, by [`NAMES`], in seconds per frame.
type Times = [f64; 6];

const NAMES: [&str; 6] = [
    "copy",
    "encode, first",
    "encode, later",
    "decode",
    "verify",
    "accumulate",
];

struct Args {
    spec: Spec,
    threads: usize,
    repeat: usize,
    files: Vec<String>,
    /// Whether to decode nothing, for profiles.
    encode_only: bool,
}

fn main() {
    let args = args();
    let read = |path: &String| std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let files: Vec<Vec<u8>> = args.files.iter().map(read).collect();
    let updates: Vec<Weights<'_>> = files.iter().map(|file| Weights::parse(file).expect("floats")).collect();
    let Some(first) = updates.first() else {
        // `cargo bench` runs every bench without files.
        return println!("no updates: see the first lines of benches/updates.rs");
    };
    let layout = Arc::new(first.layout().clone());
    let values: Vec<Vec<f32>> = updates.iter().map(|update| update.values().expect("floats")).collect();
    let mut all: Vec<Times> = Vec::new();
    let mut quality = (0.0, 0.0);
    for _ in 0..args.repeat {
        let (times, now) = run(&args, &layout, &values);
        all.push(times);
        quality = now;
    }
    let (len, (bits, error)) = (layout.len(), quality);
    println!(
        "{len} values, {} frames: {bits:.5} bits a value, relative error {error:.5}",
        values.len()
    );
    let median = |at: usize| {
        let mut times: Vec<f64> = all.iter().map(|times| times[at]).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let copy = median(0);
    for (at, name) in NAMES.iter().enumerate() {
        let seconds = median(at);
        let (speed, copies) = (len as f64 / seconds * 1e-6, seconds / copy);
        println!(
            "{name:14} {:9.3} ms {speed:9.1} M values/s {copies:8.1} copies",
            seconds * 1e3
        );
    }
}

fn args() -> Args {
    let mut args = Args {
        spec: Spec::default(),
        threads: 0,
        repeat: 15,
        files: Vec::new(),
        encode_only: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        let mut number = || given.next().and_then(|number| number.parse().ok()).expect("a number");
        match arg.as_str() {
            "--bench" => {}
            "--encode-only" => args.encode_only = true,
            "--threads" => args.threads = number(),
            "--repeat" => args.repeat = number(),
            "--spec" => {
                let path = given.next().expect("a file");
                let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
                args.spec = toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
            }
            _ => args.files.push(arg),
        }
    }
    args
}

/// One repetition; also the mean bits a value, and the relative error of all frames.
fn run(args: &Args, layout: &Arc<Layout>, updates: &[Vec<f32>]) -> (Times, (f64, f64)) {
    let mut encoder = Encoder::new(Arc::clone(layout), &args.spec).expect("a valid spec");
    encoder.set_threads(args.threads.max(1));
    let len = layout.len();
    let (mut delta, mut out, mut times) = (vec![0.5; len], vec![0.5; len], Times::default());
    let (mut bits, mut lost, mut energy) = (0.0, 0.0, 0.0);
    let mut spend = |at: usize, share: usize, work: &mut dyn FnMut()| {
        let (wall, cpu) = (Instant::now(), cpu_time());
        work();
        let spent = if args.threads > 0 {
            wall.elapsed()
        } else {
            cpu_time() - cpu
        };
        times[at] += spent.as_secs_f64() / share.max(1) as f64;
    };
    for (round, update) in updates.iter().enumerate() {
        spend(0, updates.len(), &mut || {
            black_box(&mut delta).copy_from_slice(black_box(update))
        });
        energy += squares(update, encoder.residual());
        let header = FrameHeader {
            kind: FrameKind::Update,
            round: round as u64,
            seed: round as u64,
        };
        let (at, share) = if round == 0 { (1, 1) } else { (2, updates.len() - 1) };
        let mut pending = None;
        spend(at, share, &mut || {
            pending = Some(encoder.encode(&mut delta, header).expect("a finite update"))
        });
        let pending = pending.expect("just encoded");
        lost += squares(encoder.residual().unwrap_or(&delta), None);
        bits += 8.0 * pending.frame.len() as f64 / (len * updates.len()) as f64;
        if args.encode_only {
            encoder.settle(&pending, Ack::Accepted).expect("just encoded");
            continue;
        }
        let parse = || Frame::parse(&pending.frame, layout).expect("just encoded");
        spend(3, updates.len(), &mut || {
            parse().decode(&mut out).expect("just encoded")
        });
        spend(4, updates.len(), &mut || {
            _ = black_box(parse().verify().expect("just encoded"))
        });
        spend(5, updates.len(), &mut || {
            parse().accumulate(0.1, &mut out).expect("just encoded")
        });
        encoder.settle(&pending, Ack::Accepted).expect("just encoded");
    }
    (times, (bits, (lost / energy).sqrt()))
}

/// Sum of the squares of `values` plus `residual`.
fn squares(values: &[f32], residual: Option<&[f32]>) -> f64 {
    let square = |(at, value): (usize, &f32)| f64::from(value + residual.map_or(0.0, |residual| residual[at])).powi(2);
    values.iter().enumerate().map(square).sum()
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
