//! Closing a round of updates on one thread and on two, in turns: milliseconds, the median of [`TIMES`], and the same model.
//! Frames are read from memory and their digests are checked, as of stored ones.
//!
//! `cargo bench -p fl-server --bench close`

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fl_compress::{Digest, Encoder, FrameHeader, FrameKind, Layout, Spec};
use fl_server::RunPlan;
use fl_server::model::GlobalModel;
use fl_server::state_machine::Contribution;

const CLIENTS: usize = 100;
/// Of a tensor; there are ten.
const SHAPE: [usize; 2] = [1_000, 100];
const TIMES: usize = 5;
const CODECS: [(&str, &str); 3] = [
    ("fp32", "default = {}\nmemory = 'none'"),
    (
        "top-k 1 %, 4 bits",
        "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }\nmemory = 'none'",
    ),
    ("the default, no memory", "memory = 'none'"),
];

fn main() {
    let layout = Arc::new(Layout::new((0..10).map(|i| (format!("layer{i}.weight"), SHAPE.to_vec()))).unwrap());
    let text = format!(
        "name = \"bench\"\ntask = \"bench\"\nrounds = 2\nmodel = \"none\"\n[cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n\
         [compression.downlink]\nmemory = \"none\"\ndefault = {{}}"
    );
    let plan = RunPlan::from_toml(&text, Path::new("")).unwrap();
    println!("{CLIENTS} updates of {} values, milliseconds of a close", layout.len());
    for (name, spec) in CODECS {
        let (frames, updates) = round(&layout, spec);
        let read = |digest: &Digest, bytes: &mut Vec<u8>| {
            bytes.clone_from(&frames[digest]);
            if Digest::of(bytes) == *digest {
                Ok(())
            } else {
                Err("damaged")
            }
        };
        let (mut taken, mut models) = ([Vec::new(), Vec::new()], Vec::new());
        for _ in 0..TIMES {
            for (taken, threads) in taken.iter_mut().zip([1, 2]) {
                let mut global = GlobalModel::initial(Arc::clone(&layout), vec![0.0; layout.len()], &plan).unwrap();
                global.set_threads(threads);
                let begun = Instant::now();
                models.push(global.close(1, &updates, read).unwrap().step.model);
                taken.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        assert!(models.iter().all(|model| *model == models[0]));
        let [one, two] = taken.map(|mut taken| {
            taken.sort_by(f64::total_cmp);
            taken[TIMES / 2]
        });
        println!(
            "{name}: {one:.0} on one thread, {two:.0} on two: {:.2} times sooner",
            one / two
        );
    }
}

/// The frames of a round by digest, and its updates.
fn round(layout: &Arc<Layout>, spec: &str) -> (BTreeMap<Digest, Vec<u8>>, Vec<Contribution>) {
    let spec: Spec = toml::from_str(spec).unwrap();
    let (mut frames, mut updates) = (BTreeMap::new(), Vec::new());
    for client in 0..CLIENTS as u64 {
        let mut encoder = Encoder::new(Arc::clone(layout), &spec).unwrap();
        let mut delta: Vec<f32> = (0..layout.len() as u64).map(|i| value(client, i)).collect();
        let header = FrameHeader {
            kind: FrameKind::Update,
            round: 1,
            seed: client,
        };
        let pending = encoder.encode(&mut delta, header).unwrap();
        updates.push(Contribution {
            client: format!("client-{client}").parse().unwrap(),
            examples: 1 + client,
            frame: pending.digest,
        });
        frames.insert(pending.digest, pending.frame);
    }
    (frames, updates)
}

/// Heavy-tailed values around 0, the same in every run.
fn value(client: u64, i: u64) -> f32 {
    let mixed = (client << 32 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let unit = (mixed >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
    1e-3 * unit * unit * unit
}
