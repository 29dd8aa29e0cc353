//! A federation whose model has tensors of several types and roles: buffers arrive as their mean, counters as
//! the largest, and every replica has the same bits.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fl_client::{Fit, FitPlan, Tasks};
use fl_compress::weights::{TensorFile, round_to_types};
use fl_compress::wire::Reader;
use fl_compress::{Digest, Dtype, Layout, Role, TensorSpec};
use fl_sim::federation::{self, Member, Setup};
use fl_sim::workload::TASK;

use crate::fixtures::process::{done, sim};
use crate::learners::{Practice, plain};

const CLIENTS: u64 = 3;
const ROUNDS: u64 = 3;
const EXAMPLES: u64 = 10;

fn layout() -> Arc<Layout> {
    let spec = |name: &str, shape: &[usize], dtype, role| TensorSpec::new(name, shape, dtype, role);
    let tensors = [
        spec("bn.bias", &[32], Dtype::F32, Role::Trained),
        spec("bn.num_batches_tracked", &[], Dtype::I64, Role::Counter),
        spec("bn.running_mean", &[32], Dtype::F32, Role::Buffer),
        spec("bn.running_var", &[32], Dtype::F32, Role::Buffer),
        spec("conv.weight", &[32, 27], Dtype::F16, Role::Trained),
        spec("fc.weight", &[10, 32], Dtype::Bf16, Role::Trained),
    ];
    Arc::new(Layout::of(tensors).unwrap())
}

/// What a client was handed in a round, and what it returned.
type Rounds = Arc<Mutex<BTreeMap<(u64, u64), [Vec<f32>; 2]>>>;

/// Moves trained values and statistics by a function of client and round, and counts batches.
struct Norm {
    client: u64,
    rounds: Rounds,
}

impl Practice for Norm {
    fn fit(&mut self, weights: &mut [f32], plan: &FitPlan) -> anyhow::Result<Fit> {
        let before = weights.to_vec();
        let (layout, phase) = (layout(), (self.client * 7 + plan.round) as f32);
        for at in layout.trained() {
            weights[at] += (at as f32 * 0.37 + phase).sin() * 0.01;
        }
        for at in layout.buffers() {
            // As batch normalization does: a tenth of the way towards the batch's statistics.
            weights[at] += 0.1 * ((at as f32 * 0.91 + phase).cos() - weights[at]);
        }
        // The second client sees the most batches.
        let batches = [5.0, 9.0, 2.0][self.client as usize];
        weights[layout.counters()]
            .iter_mut()
            .for_each(|count| *count += batches);
        let rounds = [before, weights.to_vec()];
        self.rounds.lock().unwrap().insert((plan.round, self.client), rounds);
        Ok(Fit::new(EXAMPLES, 0.5))
    }
}

fn setup(dir: &Path, rounds: &Rounds, precision: &str) -> Setup {
    let layout = layout();
    let mut weights: Vec<f32> = (0..layout.len()).map(|at| (at as f32 * 0.11).sin()).collect();
    weights[layout.counters()].fill(100.0);
    round_to_types(&layout, &mut weights);
    let member = |client: u64| {
        let rounds = Arc::clone(rounds);
        Member {
            name: format!("client-{client}").parse().unwrap(),
            tasks: Tasks::new().with(TASK, plain(Arc::clone(&layout), Norm { client, rounds })),
        }
    };
    let run = format!(
        "name = \"roles\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 7\nevaluate = false\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\nclients = {CLIENTS}\n\
         [limits]\nshare = 1.0\n\
         [compression]\nuplink = {{ buffers = \"{precision}\" }}\ndownlink = {{ buffers = \"{precision}\" }}\n"
    );
    let members = (0..CLIENTS).map(member).collect();
    Setup::new(dir, run, (layout, weights), members)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_buffers_are_averaged_to_the_bit_counters_take_the_largest_and_replicas_agree() {
    federate("exact", 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounded_buffers_are_averaged_to_fourteen_bits_of_their_values_and_replicas_agree() {
    federate("rounded", 1.0 / f32::from(1u16 << 13)).await;
}

/// A federation with this precision of buffers. `error`: of a mean, relative to the magnitudes of the values that it is of.
async fn federate(precision: &str, error: f32) {
    let dir = tempfile::tempdir().unwrap();
    let rounds = Rounds::default();
    let setup = setup(dir.path(), &rounds, precision);
    let (layout, first) = (layout(), setup.weights.clone());
    let score = federation::run(setup, |_| {}).await.unwrap();
    assert_eq!(score.rounds.len() as u64, ROUNDS);

    let rounds = rounds.lock().unwrap();
    let (mut expected, mut magnitude) = (first.clone(), vec![0.0f32; layout.len()]);
    let mut is_rounded = false;
    for round in 1..=ROUNDS {
        let [handed, _] = &rounds[&(round, 0)];
        for at in layout.buffers() {
            let most = error * magnitude[at];
            assert!((handed[at] - expected[at]).abs() <= most, "round {round}, {precision}");
            is_rounded |= handed[at] != expected[at];
        }
        assert_eq!(handed[layout.counters()], expected[layout.counters()], "round {round}");
        let mut rounded = handed.clone();
        round_to_types(&layout, &mut rounded);
        assert_eq!(
            bits(&rounded),
            bits(handed),
            "a value that its tensor's type does not have"
        );
        let mut mean = vec![0.0f32; layout.len()];
        magnitude.fill(0.0);
        let mut largest = f32::NEG_INFINITY;
        for client in 0..CLIENTS {
            let [before, after] = &rounds[&(round, client)];
            assert_eq!(bits(before), bits(handed), "client {client} in round {round}");
            let weight = (EXAMPLES as f64 / (CLIENTS * EXAMPLES) as f64) as f32;
            for (mean, (after, before)) in mean.iter_mut().zip(after.iter().zip(before)) {
                *mean += weight * (after - before);
            }
            for at in layout.buffers() {
                magnitude[at] = magnitude[at].max(after[at].abs());
            }
            largest = largest.max(after[layout.counters().start]);
        }
        for at in layout.buffers() {
            expected[at] = handed[at] + mean[at];
        }
        expected[layout.counters().start] = largest;
    }
    assert_eq!(is_rounded, error > 0.0);
    assert_eq!(expected[layout.counters().start], 100.0 + 9.0 * ROUNDS as f32);

    // Each client verified the digest of the model that it keeps; the server's is the same.
    for client in 0..CLIENTS {
        let kept = std::fs::read(dir.path().join(format!("clients/client-{client}/runs/roles/model"))).unwrap();
        // After magic and version of the format.
        let (version, digest): (u64, Digest) = Reader::new(&kept[6..]).value("head").unwrap();
        if version == ROUNDS {
            assert_eq!(digest.to_string(), score.model);
        }
    }

    // The export has each tensor in its own type, as it would be handed out.
    let path = dir.path().join("out.safetensors");
    done(sim([
        "server",
        "export",
        dir.path().to_str().unwrap(),
        "-o",
        path.to_str().unwrap(),
    ]));
    let bytes = std::fs::read(path).unwrap();
    let file = TensorFile::parse(&bytes).unwrap();
    let mut values = vec![0.0; layout.len()];
    file.values(&layout, &mut values).unwrap();
    for at in layout.buffers() {
        assert!((values[at] - expected[at]).abs() <= error * magnitude[at]);
    }
    assert_eq!(values[layout.counters()], expected[layout.counters()]);
    let moved = layout.trained().filter(|&at| values[at] != first[at]).count();
    assert!(moved * 2 > layout.trained().len(), "{moved}");
    done(sim(["server", "verify", dir.path().to_str().unwrap()]));
}
