//! Federations with a non-default optimizer or aggregator learn over TLS, and the model of a killed and restarted
//! server equals that of an undisturbed run.

use fl_learn::data::{Builtin, DataSource};
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::train;

const CLIENTS: u32 = 5;
const ROUNDS: u64 = 15;

/// An uplink that sends every coordinate, as the trimmed mean requires, and a compressed downlink.
const EIGHT_BITS: &str = "[compression.uplink]\nmemory = \"error-feedback\"\n\
    default = { quantize = { uniform = 8 }, code = \"rans\" }\n";

/// Accuracy of the final model.
async fn accuracy(methods: &str) -> f64 {
    let workload = Workload {
        learner: "mlp".parse().unwrap(),
        clients: CLIENTS,
        data: DataSource::new(
            "builtin",
            &Builtin {
                seed: 3,
                client: 0,
                train: 200,
                test: 100,
            },
        )
        .unwrap(),
    };
    let run = format!(
        "name = \"methods\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 7\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\nclients = {CLIENTS}\n{EIGHT_BITS}{methods}"
    );
    let score = train(&workload, 7, &run, 2).await;
    assert_eq!(score.rounds.len() as u64, ROUNDS);
    score.rounds.last().unwrap().accuracy.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_federation_learns_with_fedadam_and_with_the_trimmed_mean() {
    for methods in [
        "[optimizer]\nname = \"fedadam\"\n",
        "[aggregator]\nname = \"trimmed-mean\"\ntrim = 0.2\n",
        "[optimizer]\nname = \"fedyogi\"\n[aggregator]\nname = \"trimmed-mean\"\ntrim = 0.2\n",
    ] {
        let accuracy = accuracy(methods).await;
        println!("{methods}: {accuracy:.4}");
        assert!(accuracy > 0.8, "{methods}: {accuracy}");
    }
}
