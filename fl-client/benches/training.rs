//! Training speed of the built-in models on one core: samples a second, batch 32, the SGD step included.
//!
//! `cargo bench -p fl-client --bench training [-- [--json] [MODEL...]]`. `fl-sim/benches/torch_compare.py` runs it
//! beside PyTorch.

use std::sync::Arc;
use std::time::Instant;

use fl_client::data::{Builtin, DataSource};
use fl_client::learners::{DeviceChoice, build, initial_weights};
use fl_client::{FitPlan, Learner, Progress};
use fl_proto::{Length, Schedule, Training};

/// Repetitions of each measurement; the median counts.
const REPEAT: usize = 7;
const BATCH: u32 = 32;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.iter().any(|word| word == "--json");
    let asked: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    for (name, steps) in [("lenet", 100), ("cnn", 40), ("mlp", 400)] {
        if asked.is_empty() || asked.contains(&name) {
            let rate = samples_per_second(name, steps)?;
            match json {
                true => println!("{{\"model\":\"{name}\",\"samples_per_second\":{rate:.0}}}"),
                false => println!("{name:6} {rate:9.0} samples/s"),
            }
        }
    }
    Ok(())
}

fn samples_per_second(name: &str, steps: u32) -> anyhow::Result<f64> {
    let data = DataSource::Builtin(Builtin { train: 3200, test: 0, ..Builtin::default() }).load()?;
    let mut learner = build(name, DeviceChoice::Cpu, data)?;
    learner.load(&initial_weights(name, 1)?.1)?;
    fit(learner.as_mut(), steps / 4)?;
    let mut rates = Vec::new();
    for _ in 0..REPEAT {
        let start = Instant::now();
        fit(learner.as_mut(), steps)?;
        rates.push(f64::from(steps * BATCH) / start.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[REPEAT / 2])
}

fn fit(learner: &mut dyn Learner, steps: u32) -> anyhow::Result<()> {
    let training = Training {
        length: Length::Steps(steps),
        batch_size: BATCH,
        learning_rate: 0.05,
        schedule: Schedule::Constant,
        momentum: 0.0,
        weight_decay: 0.0,
        clip_norm: None,
        proximal: 0.0,
    };
    learner.fit(&FitPlan { training, round: 1, rounds: 1, seed: 1, progress: Arc::new(Progress::default()) })?;
    Ok(())
}
