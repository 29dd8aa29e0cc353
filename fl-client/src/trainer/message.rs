//! The messages of the trainer protocol (docs/reference/trainers.md): one JSON object a line.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use fl_compress::{Dtype, Kind, Kinds, Layout, TensorSpec};
use fl_proto::{Extra, Metric, Metrics, Schedule, Training};
use serde::{Deserialize, Serialize};

use crate::learner::{Evaluation, Fit, FitPlan, RunTensors};

/// Version of the trainer protocol.
pub(super) const VERSION: u32 = 1;
pub(super) const MAX_MESSAGE: usize = 16 << 20;
pub(super) const MODEL_FILE: &str = "model.safetensors";
pub(super) const RESULT_FILE: &str = "update.safetensors";
pub(super) const SQUARED_FILE: &str = "squared_gradients.safetensors";

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum ToTrainer<'a> {
    Start {
        version: u32,
        folder: &'a Path,
        task: &'a str,
        device: &'a str,
    },
    Join {
        run: &'a str,
        client: &'a str,
        rounds: u64,
        seed: u64,
        tensors: Vec<TensorEntry>,
        base: Option<&'a Path>,
        local: Option<&'a Path>,
        kept: Option<&'a Path>,
    },
    Fit {
        round: u64,
        rounds: u64,
        seed: u64,
        deadline_s: Option<f64>,
        weights: &'a str,
        result: &'a str,
        squared_gradients: Option<&'a str>,
        /// With the learning rate of the round in place of its schedule.
        train: Training,
        extra: &'a Extra,
    },
    Evaluate {
        round: u64,
        weights: &'a str,
    },
    Stop,
    Bye {
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct TensorEntry {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    role: &'static str,
}

impl ToTrainer<'_> {
    /// The line, with its line feed.
    pub(super) fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("texts, numbers and UTF-8 paths are always JSON");
        line.push(b'\n');
        line
    }

    pub(super) fn fit(plan: &FitPlan) -> ToTrainer<'_> {
        ToTrainer::Fit {
            round: plan.round,
            rounds: plan.rounds,
            seed: plan.seed,
            deadline_s: plan.deadline.map(|left| left.as_secs_f64()),
            weights: MODEL_FILE,
            result: RESULT_FILE,
            squared_gradients: plan.squared_gradients.then_some(SQUARED_FILE),
            train: Training {
                learning_rate: plan.training.learning_rate_in(plan.round, plan.rounds),
                schedule: Schedule::Constant,
                ..plan.training
            },
            extra: &plan.extra,
        }
    }

    pub(super) fn join<'a>(run: &'a RunTensors, local: Option<&'a Path>, kept: Option<&'a Path>) -> ToTrainer<'a> {
        let travels = run.layout.tensors().iter().map(TensorSpec::from);
        let tensors = travels.chain(run.aside.iter().cloned()).map(|tensor| TensorEntry {
            name: tensor.name,
            dtype: tensor.dtype.name(),
            shape: tensor.shape,
            role: tensor.role.name(),
        });
        ToTrainer::Join {
            run: run.run.as_str(),
            client: run.client.as_str(),
            rounds: run.rounds,
            seed: run.seed,
            tensors: tensors.collect(),
            base: run.base_file.as_deref(),
            local,
            kept,
        }
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum FromTrainer {
    Hello(Hello),
    Progress {
        done: u64,
        total: u64,
    },
    /// `squared_gradients`: whether the trainer has written a file of them.
    Fitted {
        fit: Fit,
        squared_gradients: bool,
    },
    Evaluated(Evaluation),
    Failed(String),
    Bye,
}

/// What a trainer says about itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Hello {
    /// Version of the protocol that the trainer speaks.
    pub version: u32,
    /// Every tensor of the model, sorted by name; the roles are not set.
    pub tensors: Vec<TensorSpec>,
    /// What the trainer's framework says of them.
    pub kinds: Kinds,
    /// Whether the trainer evaluates models.
    pub evaluates: bool,
    /// File in the work folder with the trainer's own first weights.
    pub weights: Option<String>,
}

/// A message as written. Fields that this client does not know are ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Raw {
    Hello {
        version: u32,
        tensors: Vec<RawTensor>,
        #[serde(default)]
        evaluates: bool,
        weights: Option<String>,
    },
    Progress {
        done: u64,
        #[serde(default)]
        total: Option<u64>,
    },
    Fitted(RawResult),
    Evaluated(RawResult),
    Failed {
        #[serde(default)]
        message: String,
    },
    Bye,
}

#[derive(Deserialize)]
struct RawTensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    kind: Option<Kind>,
}

#[derive(Deserialize)]
struct RawResult {
    examples: u64,
    loss: f64,
    correct: Option<f64>,
    #[serde(default)]
    language: bool,
    #[serde(default)]
    squared_gradients: bool,
    unchanged_ok: Option<bool>,
    #[serde(default)]
    metrics: BTreeMap<String, RawMetric>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawMetric {
    Value(f64),
    Weighted { value: f64, weight: f64 },
    Other(serde_json::Value),
}

impl FromTrainer {
    /// Reads a line, whose beginning an error has.
    pub(super) fn parse(line: &[u8]) -> anyhow::Result<Self> {
        let raw = serde_json::from_slice(line);
        let raw = raw.or_else(|error| serde_json::from_slice(&without_nan(line)).map_err(|_| error));
        let raw = raw.with_context(|| format!("`{}` is not a message", beginning(line)))?;
        Self::checked(raw).with_context(|| format!("message `{}`", beginning(line)))
    }

    fn checked(raw: Raw) -> anyhow::Result<Self> {
        Ok(match raw {
            Raw::Hello {
                version,
                tensors,
                evaluates,
                weights,
            } => Self::Hello(Hello {
                version,
                kinds: tensors
                    .iter()
                    .filter_map(|tensor| Some((tensor.name.clone(), tensor.kind?)))
                    .collect(),
                tensors: specs(tensors)?,
                evaluates,
                weights: weights.map(plain_name).transpose()?,
            }),
            Raw::Progress { done, total } => Self::Progress {
                done,
                total: total.unwrap_or(0),
            },
            Raw::Fitted(result) => Self::Fitted {
                fit: Fit {
                    metrics: metrics(result.metrics, result.examples),
                    unchanged_ok: result.unchanged_ok,
                    ..Fit::new(result.examples, result.loss)
                },
                squared_gradients: result.squared_gradients,
            },
            Raw::Evaluated(result) => Self::Evaluated(Evaluation {
                examples: result.examples,
                loss: result.loss,
                correct: result.correct,
                language: result.language,
                metrics: metrics(result.metrics, result.examples),
            }),
            Raw::Failed { message } => Self::Failed(message),
            Raw::Bye => Self::Bye,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Progress { .. } => "progress",
            Self::Fitted { .. } => "fitted",
            Self::Evaluated(_) => "evaluated",
            Self::Failed(_) => "failed",
            Self::Bye => "bye",
        }
    }
}

fn specs(raw: Vec<RawTensor>) -> anyhow::Result<Vec<TensorSpec>> {
    let mut by_name = BTreeMap::new();
    for RawTensor { name, dtype, shape, .. } in raw {
        let Some(dtype) = Dtype::find(&dtype) else {
            let known = Dtype::ALL.map(Dtype::name).join(", ");
            bail!("tensor `{name}` is {dtype}; the types are {known}");
        };
        let spec = TensorSpec {
            name: name.clone(),
            shape,
            dtype,
            ..TensorSpec::default()
        };
        // The limits of a layout, whatever the tensor's role will be.
        Layout::of([TensorSpec {
            dtype: Dtype::F32,
            ..spec.clone()
        }])?;
        ensure!(
            by_name.insert(name.clone(), spec).is_none(),
            "tensor `{name}` is named twice"
        );
    }
    ensure!(
        by_name.len() <= fl_compress::MAX_TENSORS,
        "there are more than {} tensors",
        fl_compress::MAX_TENSORS
    );
    Ok(by_name.into_values().collect())
}

fn plain_name(name: String) -> anyhow::Result<String> {
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    ensure!(
        plain,
        "`weights` must be the name of a file in the work folder, not `{name}`"
    );
    Ok(name)
}

/// The metrics of a message. One that cannot be reported is left out: the training and the other metrics count.
fn metrics(raw: BTreeMap<String, RawMetric>, examples: u64) -> Metrics {
    let mut metrics = Metrics::new();
    let mut left_out = Vec::new();
    for (name, metric) in raw {
        let metric = match metric {
            RawMetric::Value(value) => Metric {
                value,
                weight: examples.max(1) as f64,
            },
            RawMetric::Weighted { value, weight } => Metric { value, weight },
            RawMetric::Other(value) => {
                let value = beginning(value.to_string().as_bytes());
                left_out.push(format!("`{name}` is {value}, not a number"));
                continue;
            }
        };
        if let Err(error) = metrics.add(name, metric) {
            left_out.push(error.to_string());
        }
    }
    if let Some(first) = left_out.first() {
        tracing::warn!(
            left_out = left_out.len(),
            first,
            "the trainer has metrics that cannot be reported"
        );
    }
    metrics
}

/// The line with null in place of the `NaN`, `Infinity` and `-Infinity` that Python and JavaScript write and JSON lacks.
fn without_nan(line: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
    let mut out = Vec::with_capacity(line.len());
    let mut in_text = false;
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        let word = WORDS.into_iter().find(|word| !in_text && line[at..].starts_with(word));
        // A quotation mark behind a backslash does not end a text.
        let len = word
            .map_or(if byte == b'\\' { 2 } else { 1 }, <[u8]>::len)
            .min(line.len() - at);
        in_text ^= byte == b'"';
        out.extend_from_slice(if word.is_some() { b"null" } else { &line[at..at + len] });
        at += len;
    }
    out
}

fn beginning(line: &[u8]) -> String {
    let line = line.trim_ascii_end();
    let text = String::from_utf8_lossy(&line[..line.len().min(400)]);
    let mut shown: String = text.chars().take(100).collect();
    if shown.len() < line.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        format!("{:#}", FromTrainer::parse(line.as_bytes()).unwrap_err())
    }

    /// Python's `json` and JavaScript write them.
    #[test]
    fn a_metric_that_is_not_a_number_costs_no_round() {
        let line = r#"{"type":"fitted","examples":4,"loss":0.5,"metrics":{"a\"NaN":1,"b":NaN,"c":-Infinity,"d":{"value":Infinity,"weight":2}}}"#;
        let FromTrainer::Fitted { fit, .. } = FromTrainer::parse(line.as_bytes()).unwrap() else {
            panic!("another message");
        };
        assert_eq!(fit.metrics.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a\"NaN"]);
        assert!(refused(r#"{"type":"fitted","examples":4,"loss":NaN}"#).contains("is not a message"));
        assert!(refused("{\"a\\").contains("is not a message"));
    }

    #[test]
    fn the_examples_of_the_contract_are_messages() {
        let page = include_str!("../../../docs/reference/trainers.md");
        let examples: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("    {")).collect();
        let mut read = Vec::new();
        for example in examples {
            let line = format!("{{{example}");
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            match value["type"].as_str().unwrap() {
                "start" | "join" | "fit" | "evaluate" => {}
                name => {
                    assert_eq!(FromTrainer::parse(line.as_bytes()).unwrap().name(), name);
                    read.push(name.to_owned());
                }
            }
        }
        assert_eq!(read, ["hello", "progress", "fitted", "evaluated"]);
    }

    #[test]
    fn what_is_sent_has_the_fields_of_the_contract() {
        let page = include_str!("../../../docs/reference/trainers.md");
        let keys = |line: &str| -> Vec<String> {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            value.as_object().unwrap().keys().cloned().collect()
        };
        let shown = |name: &str| {
            let begin = format!("    {{\"type\":\"{name}\"");
            keys(page.lines().find(|line| line.starts_with(&begin)).unwrap().trim())
        };
        let sent = |message: &ToTrainer<'_>| keys(std::str::from_utf8(&message.to_line()).unwrap().trim());
        let start = ToTrainer::Start {
            version: VERSION,
            folder: Path::new("/f"),
            task: "t",
            device: "auto",
        };
        assert_eq!(sent(&start), shown("start"));
        let plan = FitPlan::new(Training::default(), 1, 2, u64::MAX);
        assert_eq!(sent(&ToTrainer::fit(&plan)), shown("fit"));
        let fit: serde_json::Value = serde_json::from_slice(&ToTrainer::fit(&plan).to_line()).unwrap();
        let line = page
            .lines()
            .find(|line| line.starts_with("    {\"type\":\"fit\""))
            .unwrap();
        let example: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
        let inner = |value: &serde_json::Value| value["train"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(inner(&fit), inner(&example));
        assert_eq!(fit["seed"], u64::MAX);
        let run = RunTensors {
            run: "r".parse().unwrap(),
            instance: fl_compress::Digest::of(b"i"),
            client: "c".parse().unwrap(),
            rounds: 1,
            seed: 1,
            layout: std::sync::Arc::new(Layout::new([("w", vec![2])]).unwrap()),
            aside: Vec::new(),
            base: None,
            base_file: None,
            space: None,
        };
        assert_eq!(sent(&ToTrainer::join(&run, None, None)), shown("join"));
        let evaluate = ToTrainer::Evaluate {
            round: 1,
            weights: MODEL_FILE,
        };
        assert_eq!(sent(&evaluate), shown("evaluate"));
    }

    #[test]
    fn a_trainer_may_say_what_its_framework_trains() {
        let line = br#"{"type":"hello","version":1,"tensors":[{"name":"w","dtype":"F32","shape":[1],"kind":"parameter"},{"name":"m","dtype":"F32","shape":[1],"kind":"buffer"},{"name":"x","dtype":"F32","shape":[1]}]}"#;
        let FromTrainer::Hello(hello) = FromTrainer::parse(line).unwrap() else {
            panic!()
        };
        let kinds = [("m".to_owned(), Kind::Buffer), ("w".to_owned(), Kind::Parameter)];
        assert_eq!(hello.kinds, Kinds::from(kinds));
        let run = super::super::own_run("t", &hello, |_| true).unwrap();
        let roles: Vec<&str> = run.layout.tensors().iter().map(|tensor| tensor.role.name()).collect();
        assert_eq!(roles, ["trained", "trained", "buffer"]);
    }

    #[test]
    fn a_metric_is_a_number_or_has_its_own_weight() {
        let line = br#"{"type":"fitted","examples":4,"loss":0.5,"metrics":{"a":1,"b":{"value":2,"weight":3}},"new":1}"#;
        let FromTrainer::Fitted { fit, .. } = FromTrainer::parse(line).unwrap() else {
            panic!()
        };
        let weight = |name| fit.metrics.get(name).unwrap().weight;
        assert_eq!((fit.examples, weight("a"), weight("b")), (4, 4.0, 3.0));
    }

    #[test]
    fn a_metric_that_cannot_be_reported_is_left_out_alone() {
        for kind in ["fitted", "evaluated"] {
            let kept = |metrics: &str| {
                let line = format!(r#"{{"type":"{kind}","examples":4,"loss":-0.5,"metrics":{metrics}}}"#);
                match FromTrainer::parse(line.as_bytes()).unwrap() {
                    FromTrainer::Fitted { fit, .. } => fit.metrics,
                    FromTrainer::Evaluated(evaluation) => evaluation.metrics,
                    other => panic!("{}", other.name()),
                }
            };
            let all = kept(
                r#"{"top@5":1,"mAP50-95(B)":2,"f1 score":3,"dice_%":4,"préc":5,"loss":6,"tab\t":7,"":8,"none":null,
                "text":"x","list":[1],"part":{"value":1},"light":{"value":1,"weight":0}}"#,
            );
            let names: Vec<&str> = all.iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["dice_%", "f1 score", "mAP50-95(B)", "préc", "top@5"], "{kind}");
            let many: Vec<String> = (0..40).map(|at| format!(r#""class {at}":1"#)).collect();
            assert_eq!(kept(&format!("{{{}}}", many.join(","))).len(), 32, "{kind}");
        }
    }

    #[test]
    fn lines_that_are_not_messages_are_refused_with_their_beginning() {
        for (line, named) in [
            ("hello", "`hello` is not a message"),
            (r#"{"type":"greeting"}"#, "greeting"),
            (r#"{"type":"fitted","examples":-1,"loss":0}"#, "not a message"),
            (r#"{"type":"fitted","examples":1,"loss":1e999}"#, "not a message"),
            (
                r#"{"type":"hello","version":1,"tensors":[{"name":"w","dtype":"F8","shape":[1]}]}"#,
                "tensor `w` is F8",
            ),
            (
                r#"{"type":"hello","version":1,"tensors":[{"name":"w","dtype":"F32","shape":[1]},{"name":"w","dtype":"F32","shape":[1]}]}"#,
                "`w` is named twice",
            ),
            (
                r#"{"type":"hello","version":1,"tensors":[],"weights":"../x"}"#,
                "not `../x`",
            ),
        ] {
            let why = refused(line);
            assert!(why.contains(named), "{line}: {why}");
        }
        assert!(refused(&"x".repeat(100_000)).len() < 300);
    }
}
