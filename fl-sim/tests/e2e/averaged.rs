//! The average of the last versions: clients and `fl-server export` compute it to the same bits from compressed model updates.

use std::path::Path;
use std::sync::{Arc, Mutex};

use fl_client::{Evaluation, Fit, FitPlan, Tasks};
use fl_compress::weights::TensorFile;
use fl_compress::{Digest, Layout};
use fl_sim::federation::{self, Member, Setup};
use fl_sim::wire::{self, Engine};
use fl_sim::workload::TASK;

use crate::fixtures::process::{done, sim};
use crate::learners::{Practice, plain};

const ROUNDS: u64 = 5;

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("bias", vec![50]), ("weight", vec![50, 40])]).unwrap())
}

/// Digests of what was evaluated, in order.
type Evaluated = Arc<Mutex<Vec<Digest>>>;

/// Moves the values by a function of client and round, and notes what it evaluates.
struct Waves {
    client: u64,
    evaluated: Evaluated,
}

impl Practice for Waves {
    fn fit(&mut self, weights: &mut [f32], plan: &FitPlan) -> anyhow::Result<Fit> {
        for (at, value) in weights.iter_mut().enumerate() {
            *value += (at as f32 * 0.37 + (self.client * 7 + plan.round) as f32).sin() * 0.01;
        }
        Ok(Fit::new(10, 0.5))
    }

    fn evaluate(&mut self, weights: &[f32]) -> Option<Evaluation> {
        self.evaluated.lock().unwrap().push(Digest::of_f32(weights));
        Some(Evaluation::new(10, 0.25, 5.0))
    }
}

fn setup(dir: &Path, average: &str, budget: &str, evaluated: &[Evaluated]) -> Setup {
    let member = |(client, evaluated): (usize, &Evaluated)| {
        let waves = Waves {
            client: client as u64,
            evaluated: Arc::clone(evaluated),
        };
        Member {
            name: format!("client-{client}").parse().unwrap(),
            tasks: Tasks::new().with(TASK, plain(layout(), waves)),
        }
    };
    let run = format!(
        "name = \"averaged\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 7\naverage = {average}\n\
         [cohort]\nmin = 2\ntarget = 2\nclients = {}\n\
         [compression.uplink]\n[compression.downlink]\nbudget = \"{budget}\"\n",
        evaluated.len()
    );
    let members = evaluated.iter().enumerate().map(member).collect();
    Setup::new(dir, run, (layout(), vec![0.125; layout().len()]), members)
}

fn exported(dir: &Path, more: &[&str]) -> Digest {
    let path = dir.join("out.safetensors");
    let (fed, out) = (dir.to_str().unwrap(), path.to_str().unwrap());
    done(sim([&["server", "export", fed, "-o", out], more].concat()));
    let bytes = std::fs::read(path).unwrap();
    let mut values = vec![0.0; layout().len()];
    TensorFile::parse(&bytes)
        .unwrap()
        .values(&layout(), &mut values)
        .unwrap();
    Digest::of_f32(&values)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_export_average_the_same_versions_to_the_same_bits() {
    for (average, option) in [("{ last = 3 }", "last=3"), ("{ ema = 0.8 }", "ema=0.8")] {
        let dir = tempfile::tempdir().unwrap();
        let evaluated = [Evaluated::default(), Evaluated::default()];
        let score = federation::run(setup(dir.path(), average, "0.5 bits", &evaluated), |_| {})
            .await
            .unwrap();
        let last = score.rounds.last().unwrap();
        assert_eq!(
            last.metrics.get("evaluation/average_loss"),
            Some(&0.25),
            "{:?}",
            last.metrics
        );
        assert_eq!(last.metrics.get("evaluation/average_accuracy"), Some(&0.5));

        let (model, averaged) = (exported(dir.path(), &[]), exported(dir.path(), &["--average", option]));
        assert_ne!(model, averaged);
        assert_eq!(model.to_string(), score.model);
        for evaluated in &evaluated {
            let evaluated = evaluated.lock().unwrap();
            assert_eq!(evaluated[evaluated.len() - 2..], [model, averaged], "{average}");
        }
        // Of an earlier version too, and of the first there is none beside itself.
        let first = exported(dir.path(), &["--version", "1", "--average", option]);
        assert_eq!(first, exported(dir.path(), &["--version", "1"]));
        let fourth = exported(dir.path(), &["--version", "4", "--average", option]);
        assert!(evaluated[0].lock().unwrap().contains(&fourth));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_model_wire_clients_that_were_away_evaluate_the_average_too() {
    // At 24 bits a value, two missed model updates are more bytes than a snapshot.
    let dir = tempfile::tempdir().unwrap();
    let evaluated: [Evaluated; 5] = Default::default();
    let setup = setup(dir.path(), "{ last = 3 }", "24 bits", &evaluated);
    let score = wire::run(setup, &Engine::default(), |_| {}).await.unwrap();
    let last = score.rounds.last().unwrap();
    assert_eq!(last.metrics.get("evaluation/average_accuracy"), Some(&0.5));
    let last_two = |evaluated: &Evaluated| {
        let evaluated = evaluated.lock().unwrap();
        evaluated[evaluated.len() - 2..].to_vec()
    };
    let expected = last_two(&evaluated[0]);
    assert_eq!(expected[0].to_string(), score.model);
    assert_ne!(expected[0], expected[1]);
    for client in &evaluated {
        assert_eq!(last_two(client), expected);
    }
}
