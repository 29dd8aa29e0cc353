//! Training speed of the built-in models on one core: samples a second, batch 32, the SGD step included.
//!
//! `cargo bench -p fl-client --bench training [-- [--json] [--once] [MODEL...]]`. `fl-sim/benches/torch_compare.py` runs it
//! beside PyTorch.

use std::time::Instant;

use fl_client::data::{Builtin, DataSource};
use fl_client::learners::{DeviceChoice, find};
use fl_client::{FitPlan, Learner};
use fl_proto::{Length, Schedule, Training};

/// Repetitions of each measurement; the median counts.
const REPEAT: usize = 7;
const BATCH: u32 = 32;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let asked: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let repeat = if has("--once") { 1 } else { REPEAT };
    for (name, steps) in [("lenet", 100), ("cnn", 40), ("mlp", 400)] {
        if asked.is_empty() || asked.contains(&name) {
            let (wall, cpu) = samples_per_second(name, steps, repeat)?;
            match has("--json") {
                true => println!(
                    "{{\"model\":\"{name}\",\"samples_per_second\":{wall:.0},\"samples_per_cpu_second\":{cpu:.0}}}"
                ),
                false => println!("{name:6} {wall:9.0} samples/s {cpu:9.0} samples/cpu s"),
            }
        }
    }
    Ok(())
}

/// Medians over wall time and over this thread's CPU time.
fn samples_per_second(name: &str, steps: u32, repeat: usize) -> anyhow::Result<(f64, f64)> {
    let data = DataSource::Builtin(Builtin {
        train: 3200,
        test: 0,
        ..Builtin::default()
    })
    .load()?;
    let mut learner = find(name)?.build(DeviceChoice::Cpu, data)?;
    learner.load(&find(name)?.initial_weights(1)?.1)?;
    fit(learner.as_mut(), steps / 4)?;
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        fit(learner.as_mut(), steps)?;
        let samples = f64::from(steps * BATCH);
        walls.push(samples / start.elapsed().as_secs_f64());
        cpus.push(samples / (cpu_seconds() - cpu));
    }
    walls.sort_by(f64::total_cmp);
    cpus.sort_by(f64::total_cmp);
    Ok((walls[repeat / 2], cpus[repeat / 2]))
}

/// Time this thread has had on a processor; not a number where the system does not say.
fn cpu_seconds() -> f64 {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    said.split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .map_or(f64::NAN, |ns| ns / 1e9)
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
        ..Training::default()
    };
    learner.fit(&FitPlan::new(training, 1, 1, 1))?;
    Ok(())
}
