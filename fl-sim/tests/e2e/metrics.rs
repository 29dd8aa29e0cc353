//! A federation of learners that report metrics and no right answers, from the learner to every form of the report.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fl_client::{Evaluation, Fit, FitPlan, Tasks};
use fl_proto::{Metric, Metrics};
use fl_server::report::Report;
use fl_sim::federation::{self, Member, Setup};
use fl_sim::ready;
use fl_sim::score::Score;
use fl_sim::workload::TASK;

use crate::fixtures::EXACT;
use crate::learners::{Practice, plain};

const VALUES: usize = 300;
const ROUNDS: u64 = 3;
const CLIENTS: u32 = 3;

/// A model whose loss falls by half in each round. Client `i` evaluates 10 * (i + 1) examples.
struct Language {
    client: u32,
    classifies: bool,
}

impl Language {
    fn loss(&self, weights: &[f32]) -> f64 {
        4.0 / 2f64.powf(f64::from(weights[0])) + f64::from(self.client) * 0.25
    }
}

fn metrics(name: &str, value: f64, weight: u64) -> Metrics {
    let (mut metrics, weight) = (Metrics::new(), weight as f64);
    metrics.add(name, Metric { value, weight }).unwrap();
    metrics
}

impl Practice for Language {
    fn fit(&mut self, weights: &mut [f32], plan: &FitPlan) -> anyhow::Result<Fit> {
        let loss = self.loss(weights);
        weights.iter_mut().for_each(|weight| *weight += 1.0);
        Ok(Fit {
            metrics: metrics("tokens", 1000.0 * plan.round as f64 + f64::from(self.client), 20),
            ..Fit::new(20, loss)
        })
    }

    fn evaluate(&mut self, weights: &[f32]) -> Option<Evaluation> {
        let examples = u64::from(self.client + 1) * 10;
        Some(Evaluation {
            examples,
            loss: self.loss(weights),
            correct: self.classifies.then_some((examples / 2) as f64),
            language: !self.classifies,
            metrics: metrics("bleu", f64::from(self.client) / 4.0, examples),
        })
    }
}

/// Runs the federation; the first `classify` clients classify.
async fn run(dir: &Path, classify: u32) -> Score {
    let layout = Arc::new(ready::layout(VALUES).unwrap());
    let member = |client: u32| {
        let language = Language {
            client,
            classifies: client < classify,
        };
        Member {
            name: format!("client-{client}").parse().unwrap(),
            tasks: Tasks::new().with(TASK, plain(Arc::clone(&layout), language)),
        }
    };
    let run = format!(
        "name = \"language\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 7\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\nclients = {CLIENTS}\n{EXACT}"
    );
    let members = (0..CLIENTS).map(member).collect();
    let setup = Setup::new(dir, run, (layout, vec![0.0; VALUES]), members);
    federation::run(setup, |_| {}).await.unwrap()
}

/// What a subcommand of the server prints about the federation in `dir`.
fn server(dir: &Path, command: &str, more: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fl-sim"));
    let output = program.args(["server", command]).arg(dir).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn learners_that_do_not_classify_show_perplexity_and_metrics_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let score = run(dir.path(), 0).await;
    let last = score.rounds.last().unwrap();
    // Losses 0.5, 0.75 and 1 on 10, 20 and 30 examples, of which the limit of one client's share leaves 20.
    let loss = (0.5 * 10.0 + 0.75 * 20.0 + 1.0 * 20.0) / 50.0;
    assert_eq!(last.accuracy, None);
    assert!((last.test_loss.unwrap() - loss).abs() < 1e-12, "{last:?}");
    assert!((last.perplexity.unwrap() - loss.exp()).abs() < 1e-12, "{last:?}");
    assert!(
        (last.metrics["evaluation/bleu"] - (0.25 * 20.0 + 0.5 * 20.0) / 50.0).abs() < 1e-12,
        "{last:?}"
    );
    assert!((last.metrics["train/tokens"] - 3001.0).abs() < 1e-9, "{last:?}");

    let report: Report = serde_json::from_str(&server(dir.path(), "report", &["--format", "json"])).unwrap();
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
    assert!(report.accuracy().is_none() && near(report.perplexity().unwrap(), last.perplexity.unwrap()));
    assert_eq!(report.rounds.len(), score.rounds.len());
    for (line, score) in report.rounds.iter().zip(&score.rounds) {
        assert!(near(line.trained.0["tokens"], score.metrics["train/tokens"]));
        assert!(near(line.measured.0["bleu"], score.metrics["evaluation/bleu"]));
    }
    let part = &report.participations[4];
    assert_eq!(
        (part.round, part.client.as_str(), part.trained.0["tokens"]),
        (2, "client-1", 2001.0)
    );

    let text = server(dir.path(), "report", &[]);
    let perplexity = format!("and reached a perplexity of {:.3}.", last.perplexity.unwrap());
    assert!(
        text.contains(&perplexity) && !text.contains("accuracy"),
        "{perplexity}\n{text}"
    );
    let section = text.split("\nMetrics: ").nth(1).unwrap_or_else(|| panic!("{text}"));
    let head: Vec<&str> = section.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(head, ["round", "train/tokens", "evaluation/bleu"]);
    let csv = server(dir.path(), "report", &["--format", "csv"]);
    assert!(
        csv.lines().next().unwrap().ends_with(",train/tokens,evaluation/bleu"),
        "{csv}"
    );
    let page = server(dir.path(), "report", &["--format", "html", "-o", "-"]);
    assert!(page.contains("\"evaluation/bleu\":[") && page.contains("\"perplexity\":["));

    let status = server(dir.path(), "status", &[]);
    assert!(status.contains("  round 3 trained: loss "), "{status}");
    assert!(
        status.contains(", tokens 3001.0000\n") && status.contains("perplexity "),
        "{status}"
    );
    server(dir.path(), "verify", &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_both_kinds_of_clients_accuracy_is_over_those_that_classify() {
    let dir = tempfile::tempdir().unwrap();
    let score = run(dir.path(), 2).await;
    let last = score.rounds.last().unwrap();
    assert_eq!(last.accuracy, Some(0.5));
    assert!(last.perplexity.is_some());
    let text = server(dir.path(), "report", &[]);
    let cost = "and reached an accuracy of 0.5000 where the model classifies, and a perplexity of ";
    assert!(text.contains(cost), "{text}");
}
