//! `fl-sim bench-train`: training speed of the built-in learners, beside PyTorch.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use fl_client::{DeviceChoice, FitPlan, Learner};
use fl_learn::data::{ClientData, Dataset, Examples, Features, Input, Rng, Target, Tokens};
use fl_learn::learners::LearnerChoice;
use fl_proto::{AdamW, Length, OptimizerSpec, Precision, Training};
use serde::{Deserialize, Serialize};

/// Options of `fl-sim bench-train`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchTrain {
    /// Learners, such as resnet8 or '{ name = "transformer", layers = 6 }' [default: those that a CPU trains in seconds]
    learners: Vec<LearnerChoice>,
    /// Where to compute: cpu or cuda:0
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    /// Operands of products of both: f32 is strict; tf32 and bf16 (in PyTorch, autocast) need a GPU
    #[arg(long, value_parser = PossibleValuesParser::new(["f32", "tf32", "bf16"]).map(|name| precision(&name)), default_value = "f32")]
    precision: Precision,
    /// Examples a step [default: 32; of lstm 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: Option<u32>,
    /// Tokens of a text [default: 64; of lstm 35]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    tokens: Option<u32>,
    /// Tokens of a vocabulary [default: 256; of lstm 10,000, as of Penn Treebank]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    vocabulary: Option<u32>,
    /// Measurements, of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeat: u32,
    /// Seconds of a measurement, about
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The optimizer of both: sgd, without momentum, or adamw
    #[arg(long, value_parser = ["sgd", "adamw"], default_value = "sgd")]
    optimizer: String,
    /// Let PyTorch compile its model (torch.compile)
    #[arg(long, requires = "beside")]
    compile: bool,
    /// A Python with PyTorch, which takes turns with the program: the same model, batch and optimizer, one thread on a CPU
    #[arg(long, value_name = "PYTHON")]
    beside: Option<PathBuf>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Speed {
    pub(crate) learner: String,
    /// Where it computed.
    pub(crate) device: String,
    /// Examples a step.
    pub(crate) batch: u32,
    /// What is counted: images or tokens.
    pub(crate) unit: &'static str,
    /// Our samples a second of wall time, the median.
    pub(crate) per_second: f64,
    /// Our samples a second of CPU time of the process, the median.
    pub(crate) per_cpu_second: f64,
    /// PyTorch's samples a second of wall time.
    pub(crate) torch_per_second: Option<f64>,
    /// PyTorch's samples a second of CPU time.
    pub(crate) torch_per_cpu_second: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Speeds {
    pub(crate) torch: Option<String>,
    /// In the order asked for.
    pub(crate) speeds: Vec<Speed>,
}

/// What the peer is asked to do.
#[derive(Debug, Clone, Serialize)]
struct Work<'a> {
    name: &'a str,
    settings: &'a toml::Table,
    shape: [usize; 3],
    classes: usize,
    text: bool,
    batch: u32,
    steps: u32,
    device: String,
    precision: Precision,
    optimizer: &'a str,
    compile: bool,
}

/// Seconds that some steps took.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Took {
    wall: f64,
    cpu: f64,
}

fn precision(name: &str) -> Precision {
    match name {
        "tf32" => Precision::Tf32,
        "bf16" => Precision::Bf16,
        _ => Precision::F32,
    }
}

impl BenchTrain {
    /// Measures every learner. `progress` gets the name of each before it starts.
    pub(crate) fn run(&self, progress: impl Fn(&str)) -> anyhow::Result<Speeds> {
        if self.precision != Precision::F32 && self.device == DeviceChoice::Cpu {
            let why =
                "`--precision` other than f32 needs a GPU, because a CPU computes in float32: add `--device cuda:0`";
            return Err(fl_client::Error::Config(why.to_owned()).into());
        }
        let mut peer = self.beside.as_ref().map(Peer::start).transpose()?;
        let usual = ["lenet", "cnn", "mlp", "resnet8", "lstm", "transformer"];
        let mut learners = self.learners.clone();
        if learners.is_empty() {
            let usual = usual.iter().map(|name| Ok(name.parse()?));
            learners = usual.collect::<anyhow::Result<_>>()?;
        }
        let mut speeds = Vec::with_capacity(learners.len());
        for learner in &learners {
            progress(&learner.to_string());
            speeds.push(
                self.measure(learner, peer.as_mut())
                    .with_context(|| format!("learner {learner}"))?,
            );
        }
        Ok(Speeds {
            torch: peer.as_ref().map(|peer| peer.version.clone()),
            speeds,
        })
    }

    fn measure(&self, choice: &LearnerChoice, mut peer: Option<&mut Peer>) -> anyhow::Result<Speed> {
        let name = &choice.info().name;
        let usual = choice.info().input.context("the learner has no usual input")?;
        let is_lstm = name == "lstm";
        let batch = self.batch.unwrap_or(if is_lstm { 20 } else { 32 });
        let input = match usual.target {
            Target::NextToken => Input::of_text(
                self.tokens.unwrap_or(if is_lstm { 35 } else { 64 }) as usize,
                self.vocabulary.unwrap_or(if is_lstm { 10_000 } else { 256 }) as usize,
            ),
            _ => usual,
        };
        let mut learner = choice.build(self.device, data(input, batch as usize)?)?;
        learner.load(&choice.initial_weights_for(input, 1)?.1)?;
        // The first steps load and compile kernels, which would end the search at once.
        self.fit(learner.as_mut(), batch, 2)?;
        let mut steps = 1;
        while self.fit(learner.as_mut(), batch, steps)?.wall < self.seconds / 4.0 && steps < 1 << 20 {
            steps *= 2;
        }
        let steps = steps * 4;
        let mut own = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..self.repeat {
            own.push(self.fit(learner.as_mut(), batch, steps)?);
            if let Some(peer) = &mut peer {
                theirs.push(peer.fit(&Work {
                    name,
                    settings: choice.settings(),
                    shape: input.shape,
                    classes: input.classes,
                    text: input.target == Target::NextToken,
                    batch,
                    steps,
                    device: self.device.to_string(),
                    precision: self.precision,
                    optimizer: &self.optimizer,
                    compile: self.compile,
                })?);
            }
        }
        let is_text = input.target == Target::NextToken;
        let samples = f64::from(batch) * f64::from(steps) * if is_text { input.shape[2] as f64 } else { 1.0 };
        Ok(Speed {
            learner: choice.to_string(),
            device: self.device.to_string(),
            batch,
            unit: if is_text { "tokens" } else { "images" },
            per_second: samples / median(&own, |took| took.wall).unwrap_or(f64::NAN),
            per_cpu_second: samples / median(&own, |took| took.cpu).unwrap_or(f64::NAN),
            torch_per_second: median(&theirs, |took| took.wall).map(|seconds| samples / seconds),
            torch_per_cpu_second: median(&theirs, |took| took.cpu).map(|seconds| samples / seconds),
        })
    }

    fn fit(&self, learner: &mut dyn Learner, batch: u32, steps: u32) -> anyhow::Result<Took> {
        let training = Training {
            length: Length::Steps(steps),
            batch_size: batch,
            optimizer: match &*self.optimizer {
                "adamw" => OptimizerSpec::AdamW(AdamW::default()),
                _ => OptimizerSpec::Sgd,
            },
            learning_rate: 0.01,
            precision: self.precision,
            ..Training::default()
        };
        let start = Instant::now();
        let cpu = cpu_seconds();
        learner.fit(&FitPlan::new(training, 1, 1, 1))?;
        Ok(Took {
            wall: start.elapsed().as_secs_f64(),
            cpu: cpu_seconds() - cpu,
        })
    }
}

impl Speeds {
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(torch) = &self.torch {
            let _ = writeln!(text, "beside PyTorch {torch}, taking turns; medians");
        }
        let wide = self.speeds.iter().map(|speed| speed.learner.len());
        let wide = wide.fold("learner".len(), usize::max);
        let _ = write!(text, "{:wide$}  batch         samples/s   samples/cpu s", "learner");
        if self.torch.is_some() {
            text.push_str("     PyTorch  ratio  ratio of cpu s");
        }
        for speed in &self.speeds {
            let _ = write!(
                text,
                "\n{:wide$}  {:5}  {:9.0} {:6}  {:14.0}",
                speed.learner, speed.batch, speed.per_second, speed.unit, speed.per_cpu_second
            );
            if let (Some(wall), Some(cpu)) = (speed.torch_per_second, speed.torch_per_cpu_second) {
                let _ = write!(
                    text,
                    "  {wall:10.0}  {:5.2}  {:14.2}",
                    speed.per_second / wall,
                    speed.per_cpu_second / cpu
                );
            }
        }
        text
    }
}

fn median(took: &[Took], of: fn(&Took) -> f64) -> Option<f64> {
    let mut seconds: Vec<f64> = took.iter().map(of).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied()
}

/// Four batches of noise.
fn data(input: Input, batch: usize) -> anyhow::Result<ClientData> {
    let count = 4 * batch;
    let mut rng = Rng::new(1);
    let set = if input.target == Target::NextToken {
        let length = input.shape[2];
        let mut tokens = Tokens::new(input.classes);
        for _ in 0..=count * length {
            tokens.push(rng.below(input.classes as u64) as u32)?;
        }
        // A piece is the tokens to predict, and the first token of a text is not.
        let pieces = (0..count).map(|at| (at * length + 1) as u32..((at + 1) * length + 1) as u32);
        let pieces = pieces.collect();
        Dataset::of_text(Features::Text { tokens, pieces }, length)?
    } else {
        let values = (0..count * input.len()).map(|_| rng.unit() as f32).collect();
        let labels = (0..count).map(|_| rng.below(input.classes as u64) as u8).collect();
        Dataset::new(Features::Floats(values), labels, input)?
    };
    let train = Examples::all(Arc::new(set));
    let test = train.clone().take(1);
    Ok(ClientData { train, test })
}

/// Time that all threads of the process have had on a processor, as `time.process_time` of Python: PyTorch's way back on a GPU
/// runs in a thread of its own. NaN where the system does not say.
fn cpu_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    Some(nanoseconds.sum::<f64>() / 1e9)
        .filter(|seconds| *seconds > 0.0)
        .unwrap_or(f64::NAN)
}

/// PyTorch in a process of its own.
#[derive(Debug)]
struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    version: String,
}

const PROGRAM: &str = include_str!("../benches/train.py");

#[derive(Debug, Deserialize)]
struct Hello {
    torch: String,
}

impl Peer {
    fn start(python: &PathBuf) -> anyhow::Result<Self> {
        let mut process = Command::new(python)
            .args(["-c", PROGRAM])
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("`--beside {}`", python.display()))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (requests, answers) = pipes.context("pipes to PyTorch")?;
        let mut peer = Self {
            process,
            requests,
            answers: BufReader::new(answers),
            version: String::new(),
        };
        let hello: Hello = peer
            .answer()
            .context("PyTorch did not start; install torch for this Python")?;
        peer.version = hello.torch;
        Ok(peer)
    }

    fn fit(&mut self, work: &Work<'_>) -> anyhow::Result<Took> {
        writeln!(self.requests, "{}", serde_json::to_string(work)?)?;
        self.answer().context("PyTorch's answer")
    }

    fn answer<T: for<'a> Deserialize<'a>>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the process ended");
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learners_of_images_and_of_texts_are_measured() {
        let bench = BenchTrain {
            learners: ["mlp", "{ name = 'transformer', layers = 1, width = 16, heads = 2 }"]
                .map(|text| text.parse().unwrap())
                .into(),
            device: DeviceChoice::Cpu,
            precision: Precision::F32,
            optimizer: "adamw".to_owned(),
            compile: false,
            batch: Some(2),
            tokens: Some(4),
            vocabulary: Some(8),
            repeat: 1,
            seconds: 1e-6,
            beside: None,
        };
        let speeds = bench.run(|_| {}).unwrap();
        let units: Vec<&str> = speeds.speeds.iter().map(|speed| speed.unit).collect();
        assert_eq!(units, ["images", "tokens"]);
        assert!(speeds.speeds.iter().all(|speed| speed.per_second > 0.0));
        assert!(speeds.text().contains("transformer") && !speeds.text().contains("PyTorch"));
        let narrow = BenchTrain {
            precision: precision("tf32"),
            ..bench
        };
        assert!(narrow.run(|_| {}).unwrap_err().to_string().contains("--device"));
    }

    #[test]
    fn a_python_that_is_not_there_is_named() {
        let missing = Peer::start(&PathBuf::from("/nowhere/python")).unwrap_err();
        assert!(
            format!("{missing:#}").contains("--beside /nowhere/python"),
            "{missing:#}"
        );
    }
}
