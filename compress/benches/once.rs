//! Milliseconds per encoding of the top-k chain: the best wall-clock time, and the mean CPU time of the first thread.
//! `torch_top_k.py` runs it with the number of tensors and of threads.

#[allow(dead_code, reason = "other benches use them")]
mod data;

use std::sync::Arc;
use std::time::Instant;

use data::{COLS, LEN, heavy};
use fl_compress::{Ack, Encoder, FrameHeader, FrameKind, Layout};

const REPEAT: usize = 25;

fn main() {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse::<usize>().ok());
    let (layers, threads) = (numbers.next().unwrap_or(4), numbers.next().unwrap_or(1));
    let tensors = (0..layers).map(|layer| (format!("layer{layer}"), vec![LEN / COLS / layers, COLS]));
    let layout = Arc::new(Layout::new(tensors).expect("ten million values are within every limit"));
    let spec = "memory = 'error-feedback'\n\
        default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }";
    let mut encoder =
        Encoder::new(layout, &toml::from_str(spec).expect("a valid spec")).expect("valid for every layout");
    encoder.set_threads(threads);
    let (update, mut delta) = (heavy(), vec![0.0; LEN]);
    let (mut wall, mut cpu) = (f64::MAX, 0.0);
    for round in 0..REPEAT {
        delta.copy_from_slice(&update);
        let (start, used) = (Instant::now(), cpu_seconds());
        let header = FrameHeader {
            kind: FrameKind::Update,
            round: round as u64,
            seed: 1,
        };
        let pending = encoder.encode(&mut delta, header).expect("a finite update");
        wall = wall.min(start.elapsed().as_secs_f64());
        // The system counts CPU time in ticks: only a mean is accurate.
        cpu += (cpu_seconds() - used) / REPEAT as f64;
        encoder.settle(&pending, Ack::Accepted).expect("just encoded");
    }
    println!("{:.2} {:.2}", wall * 1e3, cpu * 1e3);
}

/// CPU time of this thread; NaN if the system does not report it.
fn cpu_seconds() -> f64 {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = said.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    nanoseconds.map_or(f64::NAN, |nanoseconds| nanoseconds * 1e-9)
}
