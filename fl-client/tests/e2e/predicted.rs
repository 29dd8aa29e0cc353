//! Updates encoded against the last model update: which rounds use a predictor, also after a crash.

use std::path::Path;

use fl_client::Outcome;
use fl_compress::{Digest, Frame, Memory};

use crate::crashes::{crash_as, goes_on};
use crate::support::{Arithmetic, Call, Client, TestServer, World, config, deltas};

const ROUNDS: u64 = 4;

fn world() -> World {
    let mut world = World::new(ROUNDS);
    world.spec.memory = Memory::Cafe;
    world
}

/// The predictor named by each accepted update, by round from 1.
fn named(world: &World) -> Vec<Option<u64>> {
    let frames = world.accepted.iter().map(|(_, _, frame)| frame);
    frames
        .map(|frame| Frame::parse(frame, &world.layout).unwrap().predictor())
        .collect()
}

/// The model updates that led to the versions, by version from 1.
fn steps(world: &World) -> Vec<Option<u64>> {
    let steps = world.versions.iter().skip(1);
    steps.map(|(_, step)| Some(Digest::of(step).short())).collect()
}

fn frames(world: &World) -> Vec<Vec<u8>> {
    world.accepted.iter().map(|(_, _, frame)| frame.clone()).collect()
}

/// The frames that a client sends in an undisturbed run.
async fn undisturbed() -> Vec<Vec<u8>> {
    let server = TestServer::start(world());
    let state = tempfile::tempdir().unwrap();
    goes_on(&server, state.path()).await;
    frames(&server.world())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_update_is_encoded_against_the_step_that_made_its_model() {
    let mut exact = world();
    exact.spec = serde_json::from_str(r#"{"memory":"cafe","default":{}}"#).unwrap();
    let server = TestServer::start(exact);
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: ROUNDS }));
    let world = server.world();
    let mut expected = vec![None];
    expected.extend(&steps(&world)[..ROUNDS as usize - 1]);
    assert_eq!(named(&world), expected);
    let learned = deltas(1..=ROUNDS);
    let first = &world.versions[0].0;
    let last: Vec<f32> = first.iter().zip(&learned).map(|(first, delta)| first + delta).collect();
    assert_eq!(
        world.versions[ROUNDS as usize].0, last,
        "frame and predictor are what was learned"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_cafe_no_step_is_kept_and_no_frame_names_one() {
    let server = TestServer::start(World::new(3));
    let state = tempfile::tempdir().unwrap();
    goes_on(&server, state.path()).await;
    assert_eq!(named(&server.world()), [None; 3]);
    assert!(!state.path().join("runs/test-run/step").exists());
}

/// Crashes while the client has version 2, before round 3 is trained; `change` modifies the state folder. Returns the
/// world of the server after the rest of the run. `keep_every`: interval at which the client saves the model.
async fn crashed(keep_every: u64, change: impl Fn(&Path)) -> World {
    let mut disturbed = world();
    disturbed.hang_evaluating = Some(2);
    let server = TestServer::start(disturbed);
    let config = |state: &Path| {
        let mut config = config(&server, state);
        config.keep_model_every = keep_every;
        config
    };
    let state = crash_as(&server, config, Call::Evaluate { version: 2 }).await;
    change(&state.path().join("runs/test-run"));
    server.world().calls.clear();
    goes_on(&server, state.path()).await;
    std::mem::replace(&mut *server.world(), World::new(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_killed_between_rounds_sends_what_it_would_have_sent() {
    let expected = undisturbed().await;
    // The saved model is current; or older, so that model updates bring it up to date; or missing, so that the client
    // fetches a snapshot.
    for (keep_every, first_fetch) in [
        (1, Call::Fetch { held: Some(2), want: 3 }),
        (10, Call::Fetch { held: Some(0), want: 2 }),
        (0, Call::Fetch { held: None, want: 2 }),
    ] {
        let world = crashed(keep_every, |_| {}).await;
        assert_eq!(world.fetches()[0], first_fetch, "{keep_every}");
        assert!(frames(&world) == expected, "{keep_every}: {:?}", named(&world));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_a_snapshot_and_no_step_predicts_nothing_until_the_next_step() {
    let remove = |run: &Path| std::fs::remove_file(run.join("step")).unwrap();
    let damage = |run: &Path| {
        let mut bytes = std::fs::read(run.join("step")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(run.join("step"), bytes).unwrap();
    };
    for world in [crashed(0, remove).await, crashed(0, damage).await] {
        let steps = steps(&world);
        assert_eq!(named(&world), [None, steps[0], None, steps[2]]);
    }
}
