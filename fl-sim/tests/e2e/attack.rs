//! One of four clients has a valid certificate and lies: in its update, its number of examples, or its evaluations. The
//! run continues, and the model that the honest clients measure is as good as without the attacker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fl_client::{Evaluation, Fit, FitPlan, Learner, Progress, Tasks};
use fl_compress::Layout;
use fl_learn::data::{Builtin, DataSource};
use fl_sim::federation::{self, Member, Setup};
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::{COMPRESSED, EXACT};

const CLIENTS: u32 = 4;
const ROUNDS: u64 = 6;
const OFF: &str = "[limits]\nexamples = inf\nshare = 1.0\nnorm = inf\ndiscard = inf\n";
const CAFE: &str = "[compression.uplink]\nmemory = \"cafe\"\n";

/// The attack of the last client.
#[derive(Debug, Clone, Copy)]
enum Attack {
    None,
    /// Sends an update with every value equal to this.
    Value(f32),
    /// Scales the update by this factor.
    Times(f32),
    /// Sends an update of zeros with the maximum number of examples of the protocol.
    Examples,
    /// Reports a perfect evaluation with the lowest loss and the maximum number of examples.
    Evaluation,
    /// Turns the update against the others, and claims so many times its examples.
    Turned(u64),
}

/// Who takes part, and for how long.
#[derive(Debug, Clone, Copy)]
struct Stage {
    clients: u32,
    /// The last ones.
    attackers: u32,
    rounds: u64,
    seed: u64,
}

const STAGE: Stage = Stage {
    clients: CLIENTS,
    attackers: 1,
    rounds: ROUNDS,
    seed: 7,
};

/// The last evaluation of each client.
type Found = Arc<Mutex<BTreeMap<u32, Evaluation>>>;

/// A learner with an attack.
struct Liar {
    learner: Box<dyn Learner>,
    client: u32,
    attack: Attack,
    loaded: Vec<f32>,
    found: Found,
}

impl Learner for Liar {
    fn layout(&self) -> Arc<Layout> {
        self.learner.layout()
    }

    fn initial(&mut self, seed: u64, progress: &Arc<Progress>) -> Option<Vec<f32>> {
        self.learner.initial(seed, progress)
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        self.loaded = weights.to_vec();
        self.learner.load(weights)
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        let fit = self.learner.fit(plan)?;
        Ok(match self.attack {
            Attack::Examples => Fit {
                examples: fl_proto::MAX_EXAMPLES,
                ..fit
            },
            Attack::Turned(times) => Fit {
                examples: times * fit.examples,
                ..fit
            },
            _ => fit,
        })
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        self.learner.weights(out)?;
        for (value, before) in out.iter_mut().zip(&self.loaded) {
            *value = match self.attack {
                Attack::Value(value) => before + value,
                Attack::Times(times) => before + times * (*value - before),
                Attack::Examples => *before,
                Attack::Turned(_) => 2.0 * before - *value,
                Attack::None | Attack::Evaluation => *value,
            };
        }
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        let found = self.learner.evaluate()?;
        self.found
            .lock()
            .unwrap()
            .extend(found.clone().map(|found| (self.client, found)));
        Ok(match self.attack {
            Attack::Evaluation => Some(Evaluation::new(
                fl_proto::MAX_EXAMPLES,
                -1.7e308,
                fl_proto::MAX_EXAMPLES as f64,
            )),
            _ => found,
        })
    }
}

struct Ended {
    /// Accuracy of the final model on the first three clients.
    accuracy: f64,
    /// Accuracy of the final model on every client whose evaluation the server trusts.
    believed: f64,
    /// Accuracy as reported by the server.
    reported: f64,
    loss: f64,
}

async fn run(attack: Attack, compression: &str, limits: &str) -> Ended {
    run_on(STAGE, attack, compression, limits).await
}

async fn run_on(stage: Stage, attack: Attack, compression: &str, limits: &str) -> Ended {
    let Stage {
        clients: count,
        attackers,
        rounds,
        seed,
    } = stage;
    let honest = count - attackers;
    let dir = tempfile::tempdir().unwrap();
    let workload = Workload {
        learner: "mlp".parse().unwrap(),
        clients: count,
        data: DataSource::new(
            "builtin",
            &Builtin {
                seed: seed - 4,
                client: 0,
                train: 300,
                test: 200,
            },
        )
        .unwrap(),
    };
    let found = Found::default();
    let member = |client: u32| {
        let (workload, found) = (workload.clone(), Arc::clone(&found));
        let make = move || -> anyhow::Result<Box<dyn Learner>> {
            let learner = workload.learner(client)?;
            Ok(Box::new(Liar {
                learner,
                client,
                attack: if client >= honest { attack } else { Attack::None },
                loaded: Vec::new(),
                found,
            }))
        };
        Member {
            name: format!("client-{client}").parse().unwrap(),
            tasks: Tasks::new().with_lazy(TASK, make),
        }
    };
    let run = format!(
        "name = \"attacked\"\ntask = \"{TASK}\"\nrounds = {rounds}\nseed = {seed}\n\
         [cohort]\nmin = {count}\ntarget = {count}\nclients = {count}\n{compression}{limits}"
    );
    let first = workload.initial(seed).unwrap();
    let setup = Setup::new(dir.path(), run, first, (0..count).map(member).collect());
    let score = federation::run(setup, |_| {}).await.unwrap();
    assert_eq!(score.rounds.len() as u64, rounds);
    let found = found.lock().unwrap();
    let accuracy = |clients: u32| {
        let correct: f64 = (0..clients).filter_map(|client| found[&client].correct).sum();
        let examples: u64 = (0..clients).map(|client| found[&client].examples).sum();
        correct / examples as f64
    };
    let last = score.rounds.last().unwrap();
    let lies = matches!(attack, Attack::Evaluation);
    Ended {
        accuracy: accuracy(honest),
        // The attacker has digits in its own style. If it claims to get countless examples all right, it has two fifths.
        believed: match lies {
            true => 0.6 * accuracy(honest) + 0.4,
            false => accuracy(count),
        },
        reported: last.accuracy.unwrap(),
        loss: last.test_loss.unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_malicious_client_of_four_changes_neither_the_accuracy_nor_the_end_of_a_run() {
    let huge = [Attack::Value(1e30), Attack::Times(-1e3)];
    let lies = [Attack::Times(1e3), Attack::Examples, Attack::Evaluation];
    for (compression, more) in [(EXACT, &lies[..]), (COMPRESSED, &[]), (CAFE, &[])] {
        let calm = run(Attack::None, compression, "").await;
        println!("no attack: {:.4}", calm.accuracy);
        assert!(calm.accuracy > 0.8);
        if compression == EXACT {
            let free = run(Attack::None, compression, OFF).await;
            println!("no attack, without limits: {:.4}", free.accuracy);
            assert!((calm.accuracy - free.accuracy).abs() <= 0.01);
        }
        for &attack in huge.iter().chain(more) {
            let ended = run(attack, compression, "").await;
            let Ended {
                accuracy,
                believed,
                reported,
                loss,
            } = ended;
            println!("{attack:?}: {accuracy:.4}, reported {reported:.4}, loss {loss:.4}");
            assert!(
                accuracy >= calm.accuracy - 0.02,
                "{attack:?}: {accuracy} for {}",
                calm.accuracy
            );
            assert!(
                (reported - believed).abs() < 1e-6,
                "{attack:?}: reported {reported}, found {believed}"
            );
            // Two fifths of the weight, and forty times the median magnitude.
            assert!((-60.0..5.0).contains(&loss), "{attack:?}: {loss}");
        }
    }
}

/// Without the limits, a client that claims enough examples keeps the others from learning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_limits_one_client_decides_the_model() {
    let ended = run(Attack::Examples, EXACT, OFF).await;
    println!("{:.4}", ended.accuracy);
    assert!(ended.accuracy < 0.5, "{}", ended.accuracy);
}

/// The table of docs/threat-model.md: clients of ten that turn their updates against the others, by the bound of what they claim and
/// by the aggregator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "72 federations of ten clients; ten minutes"]
async fn colluders_by_the_bound_of_their_claims_and_the_rule_against_them() {
    const SEEDS: [u64; 3] = [101, 102, 103];
    // A vote for each coordinate: every one must be sent.
    let every = "[compression.uplink]\ndefault = { quantize = { uniform = 8 } }\n";
    let trimmed = format!("{every}[aggregator]\nname = \"trimmed-mean\"\ntrim = 0.3\n");
    for (rule, limits) in [
        ("trimmed mean", trimmed.as_str()),
        ("examples = 10", "[limits]\nexamples = 10.0\n"),
        ("examples = 4", "[limits]\nexamples = 4.0\n"),
        ("examples = 3", "[limits]\nexamples = 3.0\n"),
        ("examples = 2", "[limits]\nexamples = 2.0\n"),
        ("examples = 1", "[limits]\nexamples = 1.0\n"),
    ] {
        let compression = if limits.contains("uplink") { "" } else { COMPRESSED };
        for attackers in [0, 1, 2, 3] {
            let mut found = Vec::new();
            for seed in SEEDS {
                let stage = Stage {
                    clients: 10,
                    attackers,
                    rounds: 10,
                    seed,
                };
                found.push(run_on(stage, Attack::Turned(10), compression, limits).await.accuracy);
            }
            let mean = found.iter().sum::<f64>() / found.len() as f64;
            println!("{rule}, {attackers} of 10: {mean:.3} of {found:.3?}");
        }
    }
}
