//! Time to encode with bits that a rule chooses (`bits = { by = "bandit" | "learned" | "oracle" }`) and with a choice of codecs
//! (`or = { .. }`), compared with a constant.

#[allow(dead_code, reason = "other benches use them")]
mod data;

use std::sync::Arc;
use std::time::Instant;

use data::{COLS, heavy};
use fl_compress::{Ack, Encoder, FrameHeader, FrameKind, Layout};

/// Values of a model of eight tensors.
const LEN: usize = 1 << 20;
/// Frames before the measurement, in which samples of all tensors are measured.
const WARM_UP: u64 = 4;
const FRAMES: u64 = 40;

/// Codecs of which an encoder may choose: alone, and the first with the second after `or`.
const CODECS: [&str; 2] = [
    "quantize = { uniform = 2 }, code = 'rans'",
    "reduce = { top_k = 0.02 }, quantize = { uniform = 6 }, code = 'rans'",
];

fn main() {
    let tensors = (0..8).map(|layer| (format!("layer{layer}"), vec![LEN / COLS / 8, COLS]));
    let layout = Arc::new(Layout::new(tensors).expect("a million values are within every limit"));
    for (reduce, target) in [("'keep'", 2.0), ("{ top_k = 0.01 }", 0.15)] {
        let mut constant = 0.0;
        for bits in [
            "3",
            "{ by = 'bandit' }",
            "{ by = 'learned', target = T }",
            "{ by = 'oracle', target = T }",
        ] {
            let bits = bits.replace('T', &target.to_string());
            let codec = format!("reduce = {reduce}, quantize = {{ uniform = {{ bits = {bits} }} }}, code = 'rans'");
            let spent = print(&layout, &codec, constant);
            constant = if bits == "3" { spent } else { constant };
        }
    }
    let [first, second] = CODECS;
    let alone = CODECS.map(|codec| print(&layout, codec, 0.0));
    print(
        &layout,
        &format!("{first}, or = {{ {second} }}"),
        alone[0].min(alone[1]),
    );
}

/// Prints and returns the milliseconds per frame of a codec; `constant` are those to compare with, 0 for none.
fn print(layout: &Arc<Layout>, codec: &str, constant: f64) -> f64 {
    let update = &heavy()[..layout.len()];
    let spec = format!("memory = 'error-feedback'\ndefault = {{ {codec} }}");
    let spec = toml::from_str(&spec).expect("a valid spec");
    let mut encoder = Encoder::new(Arc::clone(layout), &spec).expect("valid for every layout");
    let (mut delta, mut spent, mut bytes) = (vec![0.0; layout.len()], 0.0, 0);
    for round in 0..WARM_UP + FRAMES {
        delta.copy_from_slice(update);
        let start = Instant::now();
        let header = FrameHeader {
            kind: FrameKind::Update,
            round,
            seed: 1,
        };
        let pending = encoder.encode(&mut delta, header).expect("a finite update");
        if round >= WARM_UP {
            spent += start.elapsed().as_secs_f64() * 1e3 / FRAMES as f64;
            bytes += pending.frame.len();
        }
        encoder.settle(&pending, Ack::Accepted).expect("just encoded");
    }
    let percent = 100.0 * spent / if constant > 0.0 { constant } else { spent };
    let bits = 8.0 * bytes as f64 / FRAMES as f64 / layout.len() as f64;
    println!("{codec}: {spent:.2} ms a frame, {percent:.0} % of a constant, {bits:.3} bits a value");
    spent
}
