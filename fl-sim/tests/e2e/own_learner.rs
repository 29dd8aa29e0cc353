//! The example with a custom learner and custom data takes part in a real run, and the federation finds the law behind
//! the readings.

#[path = "../../../fl-client/examples/own_learner.rs"]
#[allow(dead_code, unreachable_pub)]
mod example;

use std::sync::mpsc::channel;

use fl_client::{Outcome, weights};
use fl_compress::Layout;

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, done, wait_for};

const ROUNDS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_learns_what_its_thermometers_measure() {
    let fed = Fed::found();
    let layout = Layout::new([("linear.bias", vec![1]), ("linear.weight", vec![1, 3])]).unwrap();
    weights::export(&fed.path("zeros.safetensors"), &layout, &[0.0; 4]).unwrap();
    let run = format!(
        "name = \"law\"\ntask = \"thermometer\"\nmodel = \"zeros.safetensors\"\nrounds = {ROUNDS}\n\
         [cohort]\nmin = 2\ntarget = 2\n[train]\nlearning_rate = 0.05\n"
    );
    std::fs::write(fed.path("run.toml"), run).unwrap();
    for name in ["t-0", "t-1"] {
        done(fed.sim(&["server", "issue", name, "--fed", "fed", "--out", name]));
    }
    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), 0, 1, &sender);
    wait_for(&lines, 0, "serving `law` on");
    let folders = [fed.path("t-0"), fed.path("t-1")];
    let (first, second) = tokio::join!(
        example::take_part(&fed.address, &folders[0], 0),
        example::take_part(&fed.address, &folders[1], 1),
    );
    for outcome in [first, second] {
        assert_eq!(outcome.unwrap(), Outcome::Done { round: ROUNDS });
    }
    assert!(server.end().success());
    done(fed.sim(&["server", "export", "fed", "-o", "law.safetensors"]));
    let found = weights::import(&fed.path("law.safetensors"), &layout).unwrap();
    for (found, law) in found.iter().zip([0.1, 0.5, -0.25, 1.0]) {
        assert!((found - law).abs() < 1e-3, "{found} for {law}");
    }
}
