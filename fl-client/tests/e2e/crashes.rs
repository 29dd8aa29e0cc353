//! Crashes and broken connections: no update is trained twice, lost, or counted twice.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use crate::support::{
    Arithmetic, Call, Client, Fault, TestServer, World, config, copy_state, heard, is_all_of, rounds_of,
};
use fl_client::{Event, Outcome};
use fl_proto::{Metric, Metrics};

/// Runs a client until the server sees the call `at`; returns a copy of the state folder as a crash at that moment
/// leaves it. The configured faults decide how the server handles that call.
pub(crate) async fn crash(server: &TestServer, at: Call) -> tempfile::TempDir {
    crash_as(server, |state| config(server, state), at).await
}

/// As [`crash`], with another client configuration.
pub(crate) async fn crash_as(
    server: &TestServer,
    config: impl Fn(&std::path::Path) -> fl_client::ClientConfig,
    at: Call,
) -> tempfile::TempDir {
    crash_of(server, config, at, Arithmetic::new()).await
}

/// As [`crash_as`], with another learner.
pub(crate) async fn crash_of(
    server: &TestServer,
    config: impl Fn(&std::path::Path) -> fl_client::ClientConfig,
    at: Call,
    learner: Arithmetic,
) -> tempfile::TempDir {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (told, copied) = mpsc::channel();
    let (from, to): (PathBuf, PathBuf) = (before.path().into(), after.path().into());
    server.world().hook = Some(Box::new(move |call| {
        if *call == at {
            copy_state(&from, &to);
            // The test may have ended already.
            let _ = told.send(());
        }
    }));
    let client = Client::start(config(before.path()), learner);
    heard(copied).await;
    client.task.abort();
    let _ = client.task.await;
    server.world().hook = None;
    after
}

pub(crate) async fn goes_on(server: &TestServer, state: &std::path::Path) -> u64 {
    let learner = Arithmetic::new();
    let fits = learner.fits.clone();
    let client = Client::start(config(server, state), learner);
    assert!(matches!(client.finish().await, Ok(Outcome::Done { .. })));
    fits.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_between_persist_and_send_the_same_frame_is_sent() {
    let server = TestServer::start(World::new(3));
    server.world().faults.extend([Fault::HangAfter(0)]);
    let state = crash(&server, Call::Submit { round: 1, offset: 0 }).await;
    server.world().calls.clear();
    assert_eq!(goes_on(&server, state.path()).await, 2, "round 1 is not trained again");
    let world = server.world();
    assert_eq!(world.calls[0], Call::Join { pending: Some(1) });
    assert!(world.calls.contains(&Call::Submit { round: 1, offset: 0 }));
    is_all_of(&world, state.path(), 1..=3);
}

/// Sorted by name; values without a short form.
fn metrics() -> Metrics {
    let mut metrics = Metrics::new();
    for (name, value, weight) in [("top5", 0.1 + 0.2, 60.0), ("grad/norm", -1.0 / 3.0, 1e-9)] {
        metrics.add(name, Metric { value, weight }).unwrap();
    }
    metrics
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_sent_after_a_crash_has_the_metrics_of_its_training() {
    let server = TestServer::start(World::new(2));
    server.world().faults.extend([Fault::HangAfter(0)]);
    let mut learner = Arithmetic::new();
    learner.metrics = metrics();
    let at = Call::Submit { round: 1, offset: 0 };
    let state = crash_of(&server, |state| config(&server, state), at, learner).await;
    // The learner of the second process reports no metrics, and does not train round 1.
    assert_eq!(goes_on(&server, state.path()).await, 1);
    let world = server.world();
    let sent: Vec<_> = world
        .headers
        .iter()
        .map(|header| (header.id.round, &*header.metrics))
        .collect();
    assert_eq!(sent, [(1, &metrics()), (1, &metrics()), (2, &Metrics::new())]);
    assert_eq!(world.headers[0], world.headers[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_before_the_receipt_nothing_is_sent_twice() {
    let server = TestServer::start(World::new(3));
    server.world().faults.push_back(Fault::LoseReceipt);
    let state = crash(&server, Call::Taken).await;
    server.world().calls.clear();
    assert_eq!(goes_on(&server, state.path()).await, 2);
    let world = server.world();
    assert_eq!(world.calls[0], Call::Join { pending: Some(1) });
    assert!(
        !world
            .calls
            .iter()
            .any(|call| matches!(call, Call::Submit { round: 1, .. })),
        "{:?}",
        world.calls
    );
    assert_eq!(world.accepted.len(), 3);
    is_all_of(&world, state.path(), 1..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_between_receipt_and_settling_the_server_is_asked_again() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    assert_eq!(goes_on(&server, state.path()).await, 2);
    std::fs::remove_file(state.path().join("runs/test-run/verdict")).unwrap();
    {
        let mut world = server.world();
        (world.rounds, world.round, world.phase) = (3, 3, fl_proto::Phase::Training);
        world.publish();
        world.calls.clear();
    }
    assert_eq!(goes_on(&server, state.path()).await, 1);
    let world = server.world();
    assert_eq!(world.calls[0], Call::Join { pending: Some(2) });
    is_all_of(&world, state.path(), 1..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_closed_while_the_client_was_dead_gives_its_frame_back() {
    let server = TestServer::start(World::new(3));
    server.world().faults.push_back(Fault::HangAfter(0));
    let state = crash(&server, Call::Submit { round: 1, offset: 0 }).await;
    let nothing = vec![0.0; crate::support::layout().len()];
    server.world().advance(&nothing);
    assert_eq!(goes_on(&server, state.path()).await, 2);
    let world = server.world();
    assert_eq!(rounds_of(&world), [2, 3]);
    is_all_of(&world, state.path(), 1..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_cut_short_is_resumed_where_it_broke() {
    let server = TestServer::start(World::new(2));
    server.world().faults.extend([Fault::CutAfter(10), Fault::CutAfter(20)]);
    let state = tempfile::tempdir().unwrap();
    assert_eq!(goes_on(&server, state.path()).await, 2);
    let world = server.world();
    let submits: Vec<_> = world
        .calls
        .iter()
        .filter(|call| matches!(call, Call::Submit { round: 1, .. }))
        .collect();
    assert_eq!(
        submits,
        [0, 10, 20]
            .map(|offset| Call::Submit { round: 1, offset })
            .iter()
            .collect::<Vec<_>>()
    );
    is_all_of(&world, state.path(), 1..=2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_another_process_pushes_out_waits_longer_each_time() {
    let server = TestServer::start(World::new(1));
    server.world().faults.extend([(); 4].map(|()| Fault::Displace));
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    let seen = client.seen.clone();
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
    let seen = seen.lock().unwrap();
    let waits: Vec<_> = seen
        .iter()
        .filter_map(|event| match event {
            Event::Disconnected { why, retry_in } => {
                assert!(why.contains("has taken over"), "{why}");
                Some(*retry_in)
            }
            _ => None,
        })
        .collect();
    assert_eq!(waits.len(), 4);
    assert!(waits.is_sorted_by(|a, b| a < b), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_an_upload_gets_the_rest_when_it_is_back() {
    let server = TestServer::start(World::new(2));
    let (told, hanging) = mpsc::channel();
    {
        let mut world = server.world();
        world.faults.push_back(Fault::HangAfter(10));
        world.hook = Some(Box::new(move |call| {
            if *call == Call::Taken {
                told.send(()).unwrap();
            }
        }));
    }
    let state = tempfile::tempdir().unwrap();
    let learner = Arithmetic::new();
    let fits = learner.fits.clone();
    let client = Client::start(config(&server, state.path()), learner);
    heard(hanging).await;
    let world = server.world.clone();
    let server = server.replaced(world).await;
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 2 }));
    assert_eq!(fits.load(Ordering::SeqCst), 2);
    let world = server.world();
    assert!(
        world.calls.contains(&Call::Submit { round: 1, offset: 10 }),
        "{:?}",
        world.calls
    );
    is_all_of(&world, state.path(), 1..=2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_goes_on_while_the_server_is_away() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let (began, training) = mpsc::channel();
    let mut learner = Arithmetic::new();
    learner.endless = Some((1, began));
    let client = Client::start(config(&server, state.path()), learner);
    heard(training).await;
    let world = server.world.clone();
    let server = server.replaced(world).await;
    while server.world().joins() < 2 {
        tokio::task::yield_now().await;
    }
    // Training is still running: the learner stops only when the round moves on, and sends no second update.
    let nothing = vec![0.0; crate::support::layout().len()];
    server.world().advance(&nothing);
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 2 }));
    assert_eq!(server.world().accepted.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_stop_keeps_the_model_and_the_next_start_needs_no_snapshot() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let (began, training) = mpsc::channel();
    let mut learner = Arithmetic::new();
    learner.endless = Some((2, began));
    let client = Client::start(config(&server, state.path()), learner);
    heard(training).await;
    assert_eq!(client.stop().await, Outcome::Stopped);
    server.world().calls.clear();
    assert_eq!(goes_on(&server, state.path()).await, 1);
    assert_eq!(server.world().fetches(), []);
}
