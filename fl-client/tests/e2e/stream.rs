//! Updates and model updates on the stream of `Watch`, with a server that takes and sends them there.

use crate::support::{Arithmetic, Call, Client, Fault, TestServer, World, config, is_all_of};
use fl_client::Outcome;
use fl_proto::Departure;

fn world(rounds: u64) -> World {
    World {
        pushes: true,
        evaluate: true,
        ..World::new(rounds)
    }
}

async fn calls(server: &TestServer) -> (Vec<Call>, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    server.world().publish();
    let client = Client::start(config(server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 3 }));
    (server.world().calls.clone(), state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_takes_no_call() {
    let server = TestServer::start(world(3));
    let (calls, state) = calls(&server).await;
    let mut expected = vec![Call::Join { pending: None }, Call::Fetch { held: None, want: 0 }];
    expected.extend([1, 2, 3].map(|round| Call::Push { round }));
    assert_eq!(calls, expected);
    let versions: Vec<u64> = server.world().evaluations.iter().map(|report| report.version).collect();
    assert_eq!(versions, [0, 1, 2], "each with the update that was trained from it");
    is_all_of(&server.world(), state.path(), 1..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_without_an_answer_on_the_stream_is_submitted() {
    let mut world = world(3);
    world.faults.push_back(Fault::LoseReceipt);
    let server = TestServer::start(world);
    let (calls, state) = calls(&server).await;
    let tail = [
        Call::Push { round: 1 },
        Call::Submit { round: 1, offset: 0 },
        Call::Push { round: 2 },
        Call::Push { round: 3 },
    ];
    assert_eq!(calls[2..], tail);
    is_all_of(&server.world(), state.path(), 1..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_update_that_leads_elsewhere_is_replaced_by_a_snapshot() {
    let mut world = world(3);
    world.tamper_pushes = true;
    let server = TestServer::start(world);
    let (calls, state) = calls(&server).await;
    assert!(calls.contains(&Call::Fetch { held: None, want: 1 }), "{calls:?}");
    is_all_of(&server.world(), state.path(), 1..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evaluation_whose_training_fails_is_reported_by_a_call() {
    let server = TestServer::start(world(2));
    server.world().publish();
    let state = tempfile::tempdir().unwrap();
    let mut learner = Arithmetic::new();
    learner.fails_in = Some(1);
    let client = Client::start(config(&server, state.path()), learner);
    let left = Call::Leave(Departure::Round(1));
    while !server.world().calls.contains(&left) {
        tokio::task::yield_now().await;
    }
    let calls = server.world().calls.clone();
    assert_eq!(calls[2..], [Call::Evaluate { version: 0 }, left]);
    let nothing = vec![0.0; crate::support::layout().len()];
    server.world().advance(&nothing);
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 2 }));
}
