//! What the end-to-end tests share: federations in one process, federations of real processes, and where real data is.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod fed;
pub mod netns;
pub mod process;

use std::path::{Path, PathBuf};

use fl_sim::federation::{self, Setup};
use fl_sim::score::Score;
use fl_sim::workload::Workload;

/// The largest tenth at 2 bits and a scale, entropy coded, with error feedback; both ways. Small tensors go as halves.
pub const COMPRESSED: &str = r#"
[compression.uplink]
memory  = "error-feedback"
default = { reduce = { top_k = 0.1 }, quantize = { uniform = 2 }, code = "rans" }
[[compression.uplink.rules]]
when = { max_len = 1024 }
use  = { reduce = "keep", quantize = "half", code = "pack" }
[compression.downlink]
memory  = "error-feedback"
default = { reduce = { top_k = 0.1 }, quantize = { uniform = 2 }, code = "rans" }
[[compression.downlink.rules]]
when = { max_len = 1024 }
use  = { reduce = "keep", quantize = "half", code = "pack" }
"#;

/// fp32 in both directions.
pub const EXACT: &str = "[compression]\nuplink = { default = {} }\ndownlink = { default = {} }\n";

/// A folder of `../shared/data` beside the workspace. Where it is missing, says on stderr that `instead` is used.
pub fn real_data(name: &str, instead: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data")
        .join(name);
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("{} is not on this machine: running on {instead} instead", dir.display());
    None
}

/// Runs `workload` in one process, in a folder of its own. `seed`: of the first weights. `run`: `run.toml` without model.
pub async fn train(workload: &Workload, seed: u64, run: &str, at_once: usize) -> Score {
    let dir = tempfile::tempdir().unwrap();
    let (layout, weights) = workload.initial(seed).unwrap();
    let setup = Setup {
        dir: dir.path().to_owned(),
        run: run.to_owned(),
        layout,
        weights,
        members: workload.members().unwrap(),
        at_once,
        sync: false,
        live: None,
    };
    federation::run(setup, |_| {}).await.unwrap()
}
