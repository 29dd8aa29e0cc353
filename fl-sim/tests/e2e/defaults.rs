//! The defaults: with an empty `[compression]` table, every built-in learner stays within one point of fp32 (`har`
//! within two) on every data set that it supports. `docs/reference/compressors.md` has the figures.

use std::path::Path;
use std::sync::Arc;

use fl_client::learners::DeviceChoice;
use fl_sim::experiment::{Experiment, Place, Trial};
use fl_sim::workload::Evaluation;
use tokio::sync::Semaphore;

use crate::fixtures::real_data;

/// Runs the experiment `defaults-NAME` and compares each learner's default with its fp32 result. `most`: allowed loss
/// in points, averaged over the seeds.
async fn law(name: &str, data: &str, seeds: Option<&[u64]>, most: f64) {
    if real_data(data, "nothing").is_none() {
        return;
    }
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/experiments");
    let text = std::fs::read_to_string(configs.join(format!("defaults-{name}.toml"))).unwrap();
    let mut experiment = Experiment::from_toml(&text, &configs).unwrap();
    if let Some(seeds) = seeds {
        experiment.seeds = seeds.to_vec();
    }
    let dir = tempfile::tempdir().unwrap();
    let place = Place {
        gate: Arc::new(Semaphore::new(2)),
        device: DeviceChoice::Cpu,
    };
    let mut trials: Vec<Trial> = Vec::new();
    for variant in &experiment.variant {
        for &seed in &experiment.seeds {
            trials.push(
                experiment
                    .trial(variant, seed, dir.path(), &place, Evaluation::Given, |_| {})
                    .await
                    .unwrap(),
            );
        }
    }
    println!("{}", fl_sim::experiment::table(&trials));
    let mean = |name: &str| {
        let own: Vec<f64> = trials
            .iter()
            .filter(|trial| trial.variant == name)
            .map(|trial| trial.score.accuracy().unwrap())
            .collect();
        assert!(!own.is_empty(), "{name}");
        100.0 * own.iter().sum::<f64>() / own.len() as f64
    };
    let learners = experiment
        .variant
        .iter()
        .filter_map(|variant| variant.name.strip_suffix("-default"));
    for learner in learners {
        let (exact, default) = (mean(&format!("{learner}-fp32")), mean(&format!("{learner}-default")));
        assert!(default >= exact - most, "{learner}: {default:.2} % for {exact:.2} %");
    }
    for trial in trials.iter().filter(|trial| trial.variant.ends_with("-default")) {
        assert!(trial.score.balanced(), "{}", trial.score.summary(false));
        assert!(trial.score.ratio() > 5.0, "{}", trial.score.summary(false));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_codec_carries_har() {
    law("hapt", "hapt", Some(&[101]), 2.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "three seeds; a minute"]
async fn the_default_codec_carries_har_on_every_seed() {
    law("hapt", "hapt", None, 2.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "trains three learners on Fashion-MNIST, 18 runs; twenty minutes"]
async fn the_default_codec_carries_every_learner_on_fashion_mnist() {
    law("fashion", "fashion-mnist", None, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "trains three learners on CIFAR-10, 18 runs; an hour"]
async fn the_default_codec_carries_every_learner_on_cifar10() {
    law("cifar10", "cifar10", None, 1.0).await;
}
