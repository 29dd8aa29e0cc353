//! `fl-server report --what-if` on a run of 4 clients, 10 rounds and a million values: values for each
//! second of processor time, the program's start and the reading of its store included, by the codec of the run and the
//! spec that is asked about; and what the program itself says of its speed.

#![allow(clippy::unwrap_used)]

#[path = "../tests/fixtures/stored_run.rs"]
mod stored_run;

use std::process::Command;
use std::sync::Arc;

use fl_compress::{Layout, Spec};
use stored_run::StoredRun;

const ROUNDS: u64 = 10;
const ROWS: usize = 100;
const COLS: usize = 1250;
const LAYERS: usize = 8;
const TOP_K: &str = "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }";
const DEAD_ZONE: &str = "default = { quantize = { dead_zone = { step = 1.85 } }, code = 'context' }";
const RUNS: [(&str, &str); 4] = [
    ("exact", "default = {}"),
    ("top-k 1 %, 4 bits, rans", TOP_K),
    ("dead zone, context", DEAD_ZONE),
    ("the default", ""),
];
const SPECS: [(&str, &str); 8] = [
    ("exact", "default = {}"),
    ("top-k 1 %, 4 bits, rans, memory none", "memory = 'none'\n"),
    ("top-k 1 %, 4 bits, rans, error feedback", "memory = 'error-feedback'\n"),
    ("top-k 1 %, 4 bits, rans, cafe", "memory = 'cafe'\n"),
    (
        "4 bits, rans, memory none",
        "default = { quantize = { uniform = 4 }, code = 'rans' }",
    ),
    ("dead zone, context, memory none", "memory = 'none'\n"),
    ("dead zone, context, error feedback", "memory = 'error-feedback'\n"),
    ("the default", ""),
];

/// Gaussian values, whose rows and columns have log-normal scales: what updates of layers look like.
fn matrix(client: usize, round: u64) -> Vec<f32> {
    let mut state = round * 1_000 + client as u64 + 1;
    let mut unit = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0
    };
    let mut gauss = || (-2.0 * (1.0 - unit()).ln()).sqrt() * (std::f32::consts::TAU * unit()).cos();
    let columns: Vec<f32> = (0..COLS).map(|_| gauss()).collect();
    let mut values: Vec<f32> = (0..LAYERS * ROWS).map(|_| gauss() * 1e-3).collect();
    for _ in 0..LAYERS * ROWS {
        let row = gauss();
        values.extend(columns.iter().map(|column| (row + column).exp() * gauss() * 1e-3));
    }
    values
}

/// Processor time of the children that have ended, from `/proc`, in steps of 10 ms.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = |at: usize| -> f64 { fields.split_whitespace().nth(at).unwrap().parse().unwrap() };
    (ticks(13) + ticks(14)) / 100.0
}

fn main() {
    let program = env!("CARGO_BIN_EXE_fl-server");
    let biases = (0..LAYERS).map(|layer| (format!("bias{layer}"), vec![ROWS]));
    let weights = (0..LAYERS).map(|layer| (format!("weight{layer}"), vec![ROWS, COLS]));
    let layout = Arc::new(Layout::new(biases.chain(weights)).unwrap());
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (codec, text) in RUNS {
        let dir = tempfile::tempdir().unwrap();
        let fed = dir.path().join("fed");
        let founded = Command::new(program).arg("init").arg(&fed).output().unwrap();
        assert!(founded.status.success());
        let run = StoredRun {
            name: "bench",
            layout: Arc::clone(&layout),
            clients: 4,
            rounds: ROUNDS,
            uplink: &toml::from_str::<Spec>(text).unwrap(),
            delta: &matrix,
        };
        run.write(&fed.join("data"));
        for (at, (name, head)) in SPECS.iter().enumerate() {
            let title = format!("{codec} -> {name}");
            if !only.is_empty() && !only.iter().any(|part| title.contains(part)) {
                continue;
            }
            let spec = dir.path().join("spec.toml");
            let body = match at {
                1..=3 => TOP_K,
                5 | 6 => DEAD_ZONE,
                _ => "",
            };
            std::fs::write(&spec, format!("{head}{body}")).unwrap();
            for threads in ["1", "2"] {
                let mut report = Command::new(program);
                report
                    .arg("report")
                    .arg(&fed)
                    .args(["--threads", threads, "--what-if"])
                    .arg(&spec);
                let before = processor_seconds();
                let output = report.output().unwrap();
                let seconds = processor_seconds() - before;
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{error}");
                let frames = 5 * ROUNDS;
                let speed = frames as f64 * layout.len() as f64 / seconds / 1e6;
                println!(
                    "{title}, {threads} threads: {speed:.0} M values/s of processor time; {}",
                    said.lines().last().unwrap_or_default()
                );
            }
        }
    }
}
