//! Non-IID Fashion-MNIST, compressed in both directions: the model learns, every byte is accounted for, frames are
//! small, and neither randomness nor the order of arrival changes a bit of the model.

use fl_learn::data::{Builtin, DataSource, Idx, Split};
use fl_sim::score::Score;
use fl_sim::workload::{TASK, Workload};

use crate::fixtures::{COMPRESSED, EXACT, real_data, train};

const CLIENTS: u32 = 4;
const ROUNDS: u64 = 4;
const SEED: u64 = 42;

/// Fashion-MNIST with a skewed class distribution per client and at most 1,000 images per client.
fn workload() -> Workload {
    let data = match real_data("fashion-mnist", "the built-in set") {
        Some(dir) => DataSource::new(
            "idx",
            &Idx {
                dir,
                client: 0,
                clients: CLIENTS,
                split: Split::Dirichlet(0.5),
                seed: SEED,
                limit: Some(1000),
                test_limit: Some(250),
            },
        )
        .unwrap(),
        None => DataSource::new(
            "builtin",
            &Builtin {
                seed: SEED,
                client: 0,
                train: 1000,
                test: 250,
            },
        )
        .unwrap(),
    };
    Workload {
        learner: "mlp".parse().unwrap(),
        clients: CLIENTS,
        data,
    }
}

fn run(compression: &str) -> String {
    format!(
        "name = \"fashion\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = {SEED}\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n\
         [train]\nepochs = 2\nbatch_size = 20\nlearning_rate = 0.1\n{compression}"
    )
}

fn accuracies(score: &Score) -> Vec<f64> {
    score
        .rounds
        .iter()
        .map(|round| round.accuracy.expect("every model is evaluated"))
        .collect()
}

/// Properties of every run: all clients took part in every round, every byte is accounted for, and the model learned.
fn is_sound(score: &Score) {
    assert!(score.balanced(), "{}", score.summary(false));
    assert_eq!(score.rounds.len() as u64, ROUNDS);
    assert!(score.rounds.iter().all(|round| round.updates == u64::from(CLIENTS)));
    let accuracies = accuracies(score);
    println!(
        "accuracy {accuracies:.3?}, {:.1} times fewer bytes than fp32",
        score.ratio()
    );
    let (first, last) = (accuracies[0], accuracies[accuracies.len() - 1]);
    assert!(last > 0.55, "ten classes, so chance is 0.1: {accuracies:?}");
    // The built-in set is easy, so the test also checks the relative reduction of the errors.
    let left = (1.0 - last) / (1.0 - first);
    assert!(last > first + 0.03 && left < 0.8, "it does not rise: {accuracies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_both_ways_it_learns_from_few_bytes_and_gives_the_same_model_every_time() {
    let (workload, run) = (workload(), run(COMPRESSED));
    let score = train(&workload, SEED, &run, 2).await;
    is_sound(&score);
    assert!(score.ratio() > 5.0, "{}", score.summary(false));
    for round in &score.rounds {
        let dense = 4 * score.parameters * round.updates;
        assert!(
            round.frames_up * 25 < dense,
            "round {}: {} of {dense} bytes",
            round.round,
            round.frames_up
        );
    }
    let again = train(&workload, SEED, &run, 2).await;
    assert_eq!(again.model, score.model, "the same run, twice");
    let in_turn = train(&workload, SEED, &run, 1).await;
    assert_eq!(
        in_turn.model, score.model,
        "one learner at a time, so that updates come in another order"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncompressed_every_value_travels_and_every_byte_is_accounted_for() {
    let score = train(&workload(), SEED, &run(EXACT), 2).await;
    is_sound(&score);
    for round in &score.rounds {
        assert!(
            round.frames_up >= 4 * score.parameters * round.updates,
            "fp32 is 4 bytes a value"
        );
    }
}
