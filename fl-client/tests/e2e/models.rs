//! Fetching a model version: chains of model updates, snapshots, and content that does not match the announced digest.

use crate::support::{Arithmetic, Call, Client, Tamper, TestServer, World, config, heard};
use fl_client::{Error, Outcome};
use fl_compress::SpaceSpec;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_that_lead_elsewhere_are_replaced_by_a_snapshot() {
    let mut world = World::new(2);
    world.tamper = Some(Tamper::Steps);
    let server = TestServer::start(world);
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 2 }));
    let expected = [(None, 0), (Some(0), 1), (None, 1)].map(|(held, want)| Call::Fetch { held, want });
    assert_eq!(server.world().fetches(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_leads_elsewhere_is_a_clear_error() {
    let mut world = World::new(2);
    world.tamper = Some(Tamper::Everything);
    let server = TestServer::start(world);
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    let error = client.finish().await.unwrap_err();
    assert!(
        matches!(&error, Error::Protocol(text) if text.contains("version 0") && text.contains("damaged")),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_weights_are_made_and_not_fetched_if_they_are_the_servers_to_the_bit() {
    for (change, expected) in [(0.0, vec![]), (0.25, vec![Call::Fetch { held: None, want: 0 }])] {
        let world = World::new(1);
        let mut learner = Arithmetic::new();
        learner.first = Some(world.versions[0].0.iter().map(|w| w + change).collect());
        let server = TestServer::start(world);
        let state = tempfile::tempdir().unwrap();
        let client = Client::start(config(&server, state.path()), learner);
        assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
        assert_eq!(server.world().fetches(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_was_away_catches_up_by_the_steps_it_missed() {
    let server = TestServer::start(World::new(1));
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
    {
        let mut world = server.world();
        (world.rounds, world.round, world.phase) = (5, 2, fl_proto::Phase::Training);
        let step: Vec<f32> = (0..world.layout.len()).map(|i| i as f32 / 16.0).collect();
        (0..3).for_each(|_| world.advance(&step));
        world.calls.clear();
    }
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 5 }));
    assert_eq!(server.world().fetches(), [Call::Fetch { held: Some(0), want: 4 }]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_kept_model_is_fetched_again_and_a_broken_memory_is_an_error_that_names_it() {
    let server = TestServer::start(World::new(1));
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
    let run = state.path().join("runs/test-run");

    let mut model = std::fs::read(run.join("model")).unwrap();
    *model.last_mut().unwrap() ^= 1;
    std::fs::write(run.join("model"), model).unwrap();
    {
        let mut world = server.world();
        (world.rounds, world.round, world.phase) = (2, 2, fl_proto::Phase::Training);
        world.publish();
        world.calls.clear();
    }
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 2 }));
    assert_eq!(server.world().fetches(), [Call::Fetch { held: None, want: 1 }]);

    let mut memory = std::fs::read(run.join("memory")).unwrap();
    *memory.last_mut().unwrap() ^= 1;
    std::fs::write(run.join("memory"), memory).unwrap();
    {
        let mut world = server.world();
        (world.rounds, world.round, world.phase) = (3, 3, fl_proto::Phase::Training);
        world.publish();
    }
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    let text = client.finish().await.unwrap_err().to_string();
    assert!(
        text.contains("runs/test-run/memory") && text.contains("deleting it loses"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_state_folder_is_for_one_client() {
    let server = TestServer::start(World::new(1));
    let state = tempfile::tempdir().unwrap();
    let (began, training) = std::sync::mpsc::channel();
    let mut learner = Arithmetic::new();
    learner.endless = Some((1, began));
    let first = Client::start(config(&server, state.path()), learner);
    heard(training).await;
    let second = Client::start(config(&server, state.path()), Arithmetic::new());
    let text = second.finish().await.unwrap_err().to_string();
    assert!(text.contains("another client uses"), "{text}");
    assert_eq!(first.stop().await, Outcome::Stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_a_space_is_refused_by_a_learner_that_gives_no_gradients() {
    let mut world = World::new(1);
    world.training.space = Some(SpaceSpec::shared(3));
    let server = TestServer::start(world);
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    let error = client.finish().await.unwrap_err();
    assert!(
        matches!(&error, Error::Learner(text) if text.contains("`train.space`") && text.contains("gives none")),
        "{error}"
    );
}
