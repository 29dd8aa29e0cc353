//! Moments of the local optimizer that outlive a round, a crash and a rejected update.

use std::path::Path;

use fl_client::Error;
use fl_proto::{OptimizerSpec, StatePolicy, Training};

use crate::crashes::crash_of;
use crate::support::{Arithmetic, Call, Client, Fault, TestServer, World, config};

/// A run that keeps moments.
fn world(rounds: u64) -> World {
    let mut world = World::new(rounds);
    world.training = Training {
        state: StatePolicy::Kept,
        optimizer: OptimizerSpec::AdamW(Default::default()),
        ..Training::default()
    };
    world
}

/// Runs a client to the end of the run; returns the round of each training and the steps of the moments that it began with.
async fn trains(server: &TestServer, state: &Path) -> Result<Vec<(u64, u64)>, Error> {
    let learner = Arithmetic::new();
    let moments = learner.moments.clone();
    let client = Client::start(config(server, state), learner);
    client.finish().await?;
    let moments = moments.lock().unwrap();
    Ok(moments.clone())
}

async fn crash_at(server: &TestServer, at: Call) -> tempfile::TempDir {
    crash_of(server, |state| config(server, state), at, Arithmetic::new()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_round_begins_with_the_moments_of_the_one_before() {
    let server = TestServer::start(world(3));
    let state = tempfile::tempdir().unwrap();
    let seen = trains(&server, state.path()).await.unwrap();
    assert_eq!(seen, [(1, 0), (2, 1), (3, 2)]);
    let run = state.path().join("runs/test-run");
    assert!(run.join("optimizer").exists() && !run.join("optimizer-next").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_kept_state_nothing_is_written_and_each_round_begins_at_zero() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let seen = trains(&server, state.path()).await.unwrap();
    assert_eq!(seen, [(1, 0), (2, 0)]);
    assert!(!state.path().join("runs/test-run/optimizer").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moments_of_an_update_that_is_sent_after_a_crash_are_kept() {
    let server = TestServer::start(world(3));
    server.world().faults.push_back(Fault::HangAfter(0));
    let state = crash_at(&server, Call::Submit { round: 1, offset: 0 }).await;
    let seen = trains(&server, state.path()).await.unwrap();
    assert_eq!(seen, [(2, 1), (3, 2)], "round 1 is not trained again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moments_of_an_update_that_was_accepted_during_a_crash_are_kept() {
    let server = TestServer::start(world(3));
    server.world().faults.push_back(Fault::LoseReceipt);
    let state = crash_at(&server, Call::Taken).await;
    let seen = trains(&server, state.path()).await.unwrap();
    assert_eq!(seen, [(2, 1), (3, 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moments_of_an_update_that_came_too_late_are_dropped() {
    let server = TestServer::start(world(3));
    server.world().faults.push_back(Fault::HangAfter(0));
    let state = crash_at(&server, Call::Submit { round: 1, offset: 0 }).await;
    let nothing = vec![0.0; crate::support::layout().len()];
    server.world().advance(&nothing);
    let seen = trains(&server, state.path()).await.unwrap();
    assert_eq!(seen, [(2, 0), (3, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_before_the_answer_is_installed_installs_it_at_the_next_start() {
    let server = TestServer::start(world(2));
    let state = tempfile::tempdir().unwrap();
    trains(&server, state.path()).await.unwrap();
    // As between the write of the verdict and the move of the file.
    let run = state.path().join("runs/test-run");
    std::fs::rename(run.join("optimizer"), run.join("optimizer-next")).unwrap();
    another_round(&server);
    assert_eq!(trains(&server, state.path()).await, Ok(vec![(3, 2)]));
}

fn another_round(server: &TestServer) {
    let mut world = server.world();
    (world.rounds, world.round, world.phase) = (world.rounds + 1, world.round + 1, fl_proto::Phase::Training);
    world.publish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_moments_and_those_of_another_optimizer_stop_the_client_by_name() {
    let server = TestServer::start(world(1));
    let state = tempfile::tempdir().unwrap();
    trains(&server, state.path()).await.unwrap();
    another_round(&server);
    let path = state.path().join("runs/test-run/optimizer");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let why = trains(&server, state.path()).await.unwrap_err().to_string();
    assert!(why.contains("test-run/optimizer") && why.contains("delete it"), "{why}");
    std::fs::write(&path, &bytes).unwrap();
    server.world().training.optimizer = OptimizerSpec::Muon(Default::default());
    let why = trains(&server, state.path()).await.unwrap_err().to_string();
    assert!(why.contains("`adamw`") && why.contains("`muon`"), "{why}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(trains(&server, state.path()).await, Ok(vec![(2, 0)]));
}
