//! What a trainer process adds to a round beside the same learner in this process: 1e7 values in 100 tensors.
//!
//! `cargo bench -p fl-client --bench trainer [-- [--values N] [--folder DIR]]`. The program starts itself as the trainer. Both
//! learners add a constant to every value, so the difference is the cost of files, messages and conversion. The same bytes
//! written to a file and read back, in the same loop, show how busy the machine is.

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
/// Bytes that the trainer reads and writes at once.
const BLOCK: usize = 64 * 1024;

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
        base_file: None,
        space: None,
    };
    let mut inside = Inside {
        layout: Arc::clone(&layout),
        weights: vec![0.0; layout.len()],
    };
    let program = std::env::current_exe()?.display().to_string();
    let words = [program.as_str(), TRAINER, "--values", &values.to_string()].map(str::to_owned);
    let source = Source::Command(Program::new(words.to_vec(), ".")?);
    let mut outside = TrainerLearner::new(TrainerConfig::new("bench", source, &folder))?;
    outside.join(&run)?;
    let own = vec![PathBuf::from("/proc/self")];
    let group = outside.hello()?.1.context("the trainer has no process")?;
    let both = [own.clone(), members(group)?].concat();

    let weights: Vec<f32> = (0..layout.len()).map(|at| (at % 8) as f32).collect();
    let mut out = vec![0.0; layout.len()];
    let mut copied = Copied::new(&folder, 4 * layout.len())?;
    let (mut alone, mut beside, mut copies) = (Times::default(), Times::default(), Times::default());
    let (mut before, mut peak) = (0.0, 0.0f64);
    for number in 1..=ROUNDS {
        alone.add(&own, || round(&mut inside, number, &weights, &mut out))?;
        copies.add(&own, || copied.there_and_back())?;
        // The peak of this process is measured anew from here on.
        fs::write("/proc/self/clear_refs", "5")?;
        if number == 1 {
            before = memory("VmRSS:")?;
        }
        beside.add(&both, || round(&mut outside, number, &weights, &mut out))?;
        peak = peak.max(memory("VmHWM:")?);
    }
    let model = 4.0 * layout.len() as f64;
    println!(
        "{} values in {TENSORS} tensors, {ROUNDS} rounds, files in {}; each: least, median",
        layout.len(),
        folder.display()
    );
    println!("in process                {alone}");
    println!("trainer process           {beside}");
    println!("a file written and read   {copies}");
    let added = |of: fn(&Times) -> f64| (of(&beside) - of(&alone), (of(&beside) - of(&alone)) / of(&copies));
    let ((wall, ratio), (cpu, cpu_ratio)) = (added(Times::least_wall), added(Times::least_cpu));
    println!(
        "added, least              wall {wall:6.1} ms = {ratio:.2} files; CPU {cpu:6.1} ms = {cpu_ratio:.2} files"
    );
    let (wall, ratio) = added(Times::median_wall);
    println!("added, median             wall {wall:6.1} ms = {ratio:.2} files");
    println!(
        "memory                    {:.2} copies of the model more in the client at its peak, 2 files of the model",
        (peak - before) / model
    );
    Ok(())
}

/// One round of a learner: weights in, a training, weights out.
fn round(learner: &mut dyn Learner, number: u64, weights: &[f32], out: &mut [f32]) -> anyhow::Result<()> {
    learner.load(weights)?;
    learner.fit(&FitPlan::new(Training::default(), number, ROUNDS, 1))?;
    learner.weights(out)?;
    // Not all values: the check is no part of a round.
    let right = out
        .iter()
        .zip(weights)
        .step_by(4099)
        .all(|(out, weight)| *out == weight + STEP);
    ensure!(right, "round {number} returned other weights");
    Ok(())
}

fn tensors(values: usize) -> impl Iterator<Item = (String, Vec<usize>)> {
    let each = values / TENSORS;
    (0..TENSORS).map(move |at| (format!("layer{at:03}.weight"), vec![each]))
}

/// Wall time and CPU time in milliseconds.
#[derive(Default)]
struct Times {
    wall: Vec<f64>,
    cpu: Vec<f64>,
    /// Of `cpu`, what other processes than this one use.
    others: Vec<f64>,
}

impl Times {
    /// Measures `what`, which these processes do, of which this one is the first.
    fn add(&mut self, processes: &[PathBuf], what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let (_, others) = processes.split_at(1);
        let (cpu, of_others, begun) = (cpu_ms(processes)?, cpu_ms(others)?, Instant::now());
        what()?;
        self.wall.push(begun.elapsed().as_secs_f64() * 1e3);
        self.cpu.push(cpu_ms(processes)? - cpu);
        self.others.push(cpu_ms(others)? - of_others);
        for times in [&mut self.wall, &mut self.cpu, &mut self.others] {
            times.sort_by(f64::total_cmp);
        }
        Ok(())
    }

    fn least_wall(&self) -> f64 {
        self.wall[0]
    }

    fn median_wall(&self) -> f64 {
        self.wall[self.wall.len() / 2]
    }

    fn least_cpu(&self) -> f64 {
        self.cpu[0]
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let median = self.cpu[self.cpu.len() / 2];
        let (wall, most) = (self.least_wall(), self.median_wall());
        let (cpu, others) = (self.least_cpu(), self.others[0]);
        write!(
            f,
            "wall {wall:6.1} {most:6.1} ms; CPU {cpu:6.1} {median:6.1} ms, of which the trainer {others:.1} ms"
        )
    }
}

/// The processes of a group, in `/proc`.
fn members(group: i32) -> anyhow::Result<Vec<PathBuf>> {
    let of_group = |process: &PathBuf| {
        // A process may end meanwhile.
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let found = stat
            .rsplit_once(')')
            .and_then(|(_, after)| after.split_whitespace().nth(2));
        found == Some(group.to_string().as_str())
    };
    Ok(fs::read_dir("/proc")?
        .flatten()
        .map(|entry| entry.path())
        .filter(of_group)
        .collect())
}

/// CPU time of the threads of these processes, in milliseconds.
fn cpu_ms(processes: &[PathBuf]) -> anyhow::Result<f64> {
    let mut total = 0.0;
    for process in processes {
        for thread in fs::read_dir(process.join("task"))?.flatten() {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            total += text.split_whitespace().next().map_or(Ok(0.0), str::parse::<f64>)? / 1e6;
        }
    }
    Ok(total)
}

/// A figure of this process's memory, in bytes.
fn memory(name: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}

/// A file that is written and read back, as large as a model.
struct Copied {
    path: PathBuf,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Copied {
    fn new(folder: &Path, len: usize) -> anyhow::Result<Self> {
        Ok(Self {
            path: folder.join(format!("fl-bench-{}", std::process::id())),
            from: vec![1; len],
            to: Vec::with_capacity(len),
        })
    }

    fn there_and_back(&mut self) -> anyhow::Result<()> {
        replace(&self.path, &self.from)?;
        self.to.clear();
        File::open(&self.path)?.read_to_end(&mut self.to)?;
        ensure!(self.to.len() == self.from.len(), "the file is truncated");
        Ok(())
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
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
    let (mut folder, mut header, mut weights) = (PathBuf::new(), Vec::new(), vec![0.0f32; values / TENSORS * TENSORS]);
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
                read(&folder.join(name("weights")), &mut header, &mut weights)?;
                weights.iter_mut().for_each(|weight| *weight += STEP);
                write(&folder.join(name("result")), &header, &weights)?;
                json!({"type": "fitted", "examples": 1, "loss": 0.0})
            }
            "bye" => return Ok(()),
            _ => continue,
        };
        to_client.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

/// Reads a safetensors file in small blocks, as a trainer that maps the file does.
fn read(path: &Path, header: &mut Vec<u8>, weights: &mut [f32]) -> anyhow::Result<()> {
    let mut file = File::open(path)?;
    header.resize(8, 0);
    file.read_exact(header)?;
    let len = u64::from_le_bytes(*header.first_chunk().context("an empty file")?) as usize;
    header.resize(8 + len, 0);
    file.read_exact(&mut header[8..])?;
    let mut block = [0; BLOCK];
    for weights in weights.chunks_mut(BLOCK / 4) {
        let block = &mut block[..4 * weights.len()];
        file.read_exact(block)?;
        let values = block.as_chunks().0.iter();
        weights
            .iter_mut()
            .zip(values)
            .for_each(|(weight, b)| *weight = f32::from_le_bytes(*b));
    }
    Ok(())
}

/// Overwrites a safetensors file in small blocks, without giving up its pages.
fn write(path: &Path, header: &[u8], weights: &[f32]) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all(header)?;
    let mut block = [0; BLOCK];
    for weights in weights.chunks(BLOCK / 4) {
        let block = &mut block[..4 * weights.len()];
        let bytes = block.as_chunks_mut().0.iter_mut();
        bytes.zip(weights).for_each(|(b, weight)| *b = weight.to_le_bytes());
        file.write_all(block)?;
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
