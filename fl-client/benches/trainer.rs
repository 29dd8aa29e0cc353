//! What a trainer process adds to a round beside the same learner in this process: 1e7 values in 100 tensors.
//!
//! `cargo bench -p fl-client --bench trainer [-- [--values N] [--folder DIR]]`. The program starts itself as the trainer. Both
//! learners add a constant to every value, so the difference is the cost of files, messages and conversion.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use fl_client::trainer::{Program, Source, TrainerConfig, TrainerLearner};
use fl_client::{Evaluation, Fit, FitPlan, Learner, RunTensors};
use fl_compress::{Digest, Layout};
use fl_proto::Training;
use serde_json::{Value, json};

const TENSORS: usize = 100;
const ROUNDS: u64 = 15;
const TRAINER: &str = "--as-trainer";
const STEP: f32 = 0.125;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let after = |key: &str| {
        words
            .iter()
            .position(|word| word == key)
            .and_then(|at| words.get(at + 1))
    };
    let values: usize = after("--values").map_or(Ok(10_000_000), |n| n.parse())?;
    if words.iter().any(|word| word == TRAINER) {
        return trainer(values);
    }
    let folder = after("--folder").map_or_else(std::env::temp_dir, PathBuf::from);
    let layout = Arc::new(Layout::new(tensors(values))?);
    let run = RunTensors {
        run: "bench".parse()?,
        instance: Digest::of(b"bench"),
        client: "bench".parse()?,
        rounds: ROUNDS,
        seed: 1,
        layout: Arc::clone(&layout),
        aside: Vec::new(),
        base: None,
    };
    let mut inside = Inside {
        layout: Arc::clone(&layout),
        weights: vec![0.0; layout.len()],
    };
    let alone = median(&mut inside, &layout)?;
    drop(inside);
    let program = std::env::current_exe()?.display().to_string();
    let words = [program.as_str(), TRAINER, "--values", &values.to_string()].map(str::to_owned);
    let source = Source::Command(Program::new(words.to_vec(), ".")?);
    let mut outside = TrainerLearner::new(TrainerConfig::new("bench", source, &folder))?;
    outside.join(&run)?;
    let before = resident()?;
    let beside = median(&mut outside, &layout)?;
    let copies = (resident()? - before) / (4.0 * layout.len() as f64);
    println!(
        "{} values in {TENSORS} tensors, {ROUNDS} rounds, files in {}",
        layout.len(),
        folder.display()
    );
    println!("in process      {alone:7.1} ms");
    println!("trainer process {beside:7.1} ms");
    println!(
        "added           {:7.1} ms, {copies:.2} copies of the model in the client, 2 files",
        beside - alone
    );
    Ok(())
}

fn tensors(values: usize) -> impl Iterator<Item = (String, Vec<usize>)> {
    let each = values / TENSORS;
    (0..TENSORS).map(move |at| (format!("layer{at:03}.weight"), vec![each]))
}

/// Median time of a round in milliseconds: weights in, a training, weights out.
fn median(learner: &mut dyn Learner, layout: &Layout) -> anyhow::Result<f64> {
    let weights: Vec<f32> = (0..layout.len()).map(|at| (at % 8) as f32).collect();
    let mut out = vec![0.0; layout.len()];
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        let begun = Instant::now();
        learner.load(&weights)?;
        learner.fit(&FitPlan::new(Training::default(), round, ROUNDS, 1))?;
        learner.weights(&mut out)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        let right = out.iter().zip(&weights).all(|(out, weight)| *out == weight + STEP);
        ensure!(right, "round {round} returned other weights");
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Resident memory of this process, in bytes.
fn resident() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}

/// The learner without a process.
struct Inside {
    layout: Arc<Layout>,
    weights: Vec<f32>,
}

impl Learner for Inside {
    fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        self.weights.copy_from_slice(weights);
        Ok(())
    }

    fn fit(&mut self, _: &FitPlan) -> anyhow::Result<Fit> {
        self.weights.iter_mut().for_each(|weight| *weight += STEP);
        Ok(Fit::new(1, 0.0))
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        out.copy_from_slice(&self.weights);
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        Ok(None)
    }
}

/// The same learner as a trainer.
fn trainer(values: usize) -> anyhow::Result<()> {
    let from_client = BufReader::new(File::open("/proc/self/fd/3")?);
    let mut to_client = OpenOptions::new().write(true).open("/proc/self/fd/4")?;
    let (mut folder, mut bytes, mut weights) = (PathBuf::new(), Vec::new(), vec![0.0f32; 0]);
    for line in from_client.lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let name = |key: &str| message[key].as_str().unwrap_or_default();
        let answer = match name("type") {
            "start" => {
                folder = PathBuf::from(name("folder"));
                let tensors: Vec<Value> = tensors(values)
                    .map(|(name, shape)| json!({"name": name, "dtype": "F32", "shape": shape}))
                    .collect();
                json!({"type": "hello", "version": 1, "tensors": tensors})
            }
            "fit" => {
                bytes.clear();
                File::open(folder.join(name("weights")))?.read_to_end(&mut bytes)?;
                let head = 8 + u64::from_le_bytes(*bytes.first_chunk().context("an empty file")?) as usize;
                weights.clear();
                weights.extend(bytes[head..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)));
                weights.iter_mut().for_each(|weight| *weight += STEP);
                bytes[head..]
                    .as_chunks_mut()
                    .0
                    .iter_mut()
                    .zip(&weights)
                    .for_each(|(b, w)| *b = w.to_le_bytes());
                replace(&folder.join(name("result")), &bytes)?;
                json!({"type": "fitted", "examples": 1, "loss": 0.0})
            }
            "bye" => return Ok(()),
            _ => continue,
        };
        to_client.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

/// Overwrites a file without giving up its pages.
fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    Ok(())
}
