//! Resident memory of one client. A separate test binary, so that nothing else runs during the measurement.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::path::Path;

use fl_client::{DeviceChoice, FitPlan, Learner};
use fl_learn::data::{DataSource, Idx, Split};
use fl_learn::learners::LearnerChoice;
use fl_proto::{Length, Training};

/// Resident memory of this process, in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

fn trained(mut learner: Box<dyn Learner>) -> Box<dyn Learner> {
    let layout = learner.layout();
    learner.load(&vec![0.01; layout.len()]).unwrap();
    let training = Training {
        length: Length::Steps(20),
        ..Training::default()
    };
    let plan = FitPlan::new(training, 1, 1, 1);
    learner.fit(&plan).unwrap();
    assert!(learner.evaluate().unwrap().is_some());
    learner
}

#[test]
fn a_client_of_a_tenth_of_fashion_mnist_does_not_keep_the_other_nine() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/fashion-mnist");
    if !dir.is_dir() {
        eprintln!("skipped: {} is not on this machine", dir.display());
        return;
    }
    let source = DataSource::new(
        "idx",
        &Idx {
            dir,
            client: 3,
            clients: 10,
            split: Split::Iid,
            seed: 42,
            limit: None,
            test_limit: None,
        },
    )
    .unwrap();
    let mlp: LearnerChoice = "mlp".parse().unwrap();
    let build = |data| trained(mlp.build(DeviceChoice::Cpu, data).unwrap());
    let before = resident();
    let learner = build(source.load().unwrap().compact());
    let compact = resident() - before;
    drop(learner);
    let learner = build(source.load().unwrap());
    let whole = resident() - before;
    drop(learner);
    println!(
        "a trained client with its own examples: {compact:.1} MiB more than before; with the whole set: {whole:.1}"
    );
    // The client's tenth of both sets is 5 MiB of the 52 MiB; the remainder is the learner's.
    assert!(compact < 25.0 && compact + 30.0 < whole, "{compact:.1} {whole:.1}");
}
