//! A client in an undisturbed run: it sends what it learned, and its model equals the server's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use crate::support::{Arithmetic, Call, Client, Fault, TestServer, World, config, heard, is_all_of, rounds_of};
use fl_client::ClassNames;
use fl_client::{Evaluation, Event, Outcome, Tasks, Verdict};
use fl_compress::Layout;
use fl_proto::{Departure, Metric, Refusal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_and_residual_are_the_deltas_and_the_model_follows_step_by_step() {
    let server = TestServer::start(World::new(5));
    let state = tempfile::tempdir().unwrap();
    let learner = Arithmetic::new();
    let fits = learner.fits.clone();
    let client = Client::start(config(&server, state.path()), learner);
    let seen = client.seen.clone();
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 5 }));

    let world = server.world();
    assert_eq!(fits.load(Ordering::SeqCst), 5);
    is_all_of(&world, state.path(), 1..=5);
    let mut expected = vec![Call::Fetch { held: None, want: 0 }];
    expected.extend((1..5).map(|want| Call::Fetch {
        held: Some(want - 1),
        want,
    }));
    assert_eq!(world.fetches(), expected);
    assert!(
        !world.calls.iter().any(|call| matches!(call, Call::Offer { .. })),
        "no question without a doubt"
    );
    let sent = seen
        .lock()
        .unwrap()
        .iter()
        .filter(|e| {
            matches!(
                e,
                Event::Sent {
                    verdict: Verdict::Accepted,
                    ..
                }
            )
        })
        .count();
    assert_eq!(sent, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_update_goes_into_a_later_one() {
    let server = TestServer::start(World::new(3));
    let (told, refused) = mpsc::channel();
    {
        let mut world = server.world();
        world.faults.push_back(Fault::Refuse(Refusal::NotThisRound));
        world.hook = Some(Box::new(move |call| {
            if let Call::Submit { round: 1, .. } = call {
                told.send(()).unwrap();
            }
        }));
    }
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    heard(refused).await;
    // The round closes without this client.
    let nothing = vec![0.0; crate::support::layout().len()];
    server.world().advance(&nothing);
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 3 }));

    let world = server.world();
    assert_eq!(rounds_of(&world), [2, 3]);
    is_all_of(&world, state.path(), 1..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_moves_on_stops_the_learner_and_nothing_of_it_is_kept() {
    let server = TestServer::start(World::new(3));
    let state = tempfile::tempdir().unwrap();
    let (began, training) = mpsc::channel();
    let mut learner = Arithmetic::new();
    learner.endless = Some((1, began));
    let client = Client::start(config(&server, state.path()), learner);
    heard(training).await;
    let nothing = vec![0.0; crate::support::layout().len()];
    server.world().advance(&nothing);
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 3 }));

    let world = server.world();
    assert_eq!(rounds_of(&world), [2, 3]);
    is_all_of(&world, state.path(), 2..=3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_that_fails_leaves_the_round_and_says_why() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let mut learner = Arithmetic::new();
    learner.fails_in = Some(1);
    let client = Client::start(config(&server, state.path()), learner);
    let seen = client.seen.clone();
    let left = || {
        seen.lock()
            .unwrap()
            .iter()
            .any(|e| matches!(e, Event::LeftRound { round: 1, why } if why.contains("unplugged")))
    };
    while !left() {
        tokio::task::yield_now().await;
    }
    let nothing = vec![0.0; crate::support::layout().len()];
    server.world().advance(&nothing);
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 2 }));
    let world = server.world();
    assert_eq!(world.accepted.len(), 1);
    assert!(
        world.calls.contains(&Call::Leave(Departure::Round(1))),
        "{:?}",
        world.calls
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_learner_is_for_another_model_says_so_before_it_ends() {
    let mut world = World::new(2);
    world.layout = Arc::new(Layout::new([("of.another.model", vec![3])]).unwrap());
    let server = TestServer::start(world);
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert!(matches!(client.finish().await, Err(fl_client::Error::Learner(_))));
    assert_eq!(server.world().calls.last(), Some(&Call::Leave(Departure::Learner)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_replaced_and_asked_again_begins_another_update() {
    let mut world = World::new(1);
    world.faults.push_back(Fault::Refuse(Refusal::NotSelected));
    let server = TestServer::start(world);
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
    let world = server.world();
    assert_eq!((rounds_of(&world), world.refused.len()), (vec![1], 1));
    assert_ne!(world.accepted[0].1, world.refused[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_that_panics_ends_the_client_with_an_error() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let mut learner = Arithmetic::new();
    learner.panics_in = Some(1);
    let client = Client::start(config(&server, state.path()), learner);
    assert!(matches!(client.finish().await, Err(fl_client::Error::Crashed(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_of_another_model_is_refused_with_both_shapes_named() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let mut learner = Arithmetic::new();
    learner.layout =
        std::sync::Arc::new(fl_compress::Layout::new([("a.weight", vec![8, 6]), ("b.bias", vec![3])]).unwrap());
    let client = Client::start(config(&server, state.path()), learner);
    let text = client.finish().await.unwrap_err().to_string();
    assert!(
        text.contains("`a.weight` has shape [8, 6]; [8, 5] is expected"),
        "{text}"
    );
}

/// A run of one round, whose model is evaluated before and after it.
fn evaluating() -> TestServer {
    let mut world = World::new(1);
    (world.evaluate, world.evaluate_at_end) = (true, true);
    world.publish();
    TestServer::start(world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evaluation_without_right_answers_is_reported_with_its_metrics() {
    for classifies in [false, true] {
        let server = evaluating();
        let state = tempfile::tempdir().unwrap();
        let mut learner = Arithmetic::new();
        learner.classifies = classifies;
        let (value, weight) = (0.75, 10.0);
        learner.metrics.add("bleu", Metric { value, weight }).unwrap();
        let metrics = learner.metrics.clone();
        let client = Client::start(config(&server, state.path()), learner);
        assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
        let world = server.world();
        assert_eq!(world.evaluations.len(), 2);
        for report in &world.evaluations {
            assert_eq!(report.correct, classifies.then_some(7.0));
            assert_eq!(*report.metrics, metrics);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_is_evaluated_when_asked_before_training_and_at_the_end() {
    let server = evaluating();
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    let seen = client.seen.clone();
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
    let evaluated = |e: &Event| {
        if let Event::Evaluated { version, .. } = e {
            Some(*version)
        } else {
            None
        }
    };
    assert_eq!(
        seen.lock().unwrap().iter().filter_map(evaluated).collect::<Vec<_>>(),
        [0, 1]
    );
    let world = server.world();
    let reported: Vec<u64> = world.evaluations.iter().map(|report| report.version).collect();
    assert_eq!(reported, [0, 1]);
    // The first travels with the update.
    let is_call = |call: &&Call| matches!(call, Call::Evaluate { .. });
    let calls: Vec<_> = world.calls.iter().filter(is_call).collect();
    assert_eq!(calls, [&Call::Evaluate { version: 1 }]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_told_that_a_client_does_not_evaluate_the_last_model() {
    let of_nothing = Evaluation::new(0, f64::NAN, 0.0);
    for missing in [Ok(None), Ok(Some(of_nothing)), Err("the test set is gone")] {
        let server = evaluating();
        let state = tempfile::tempdir().unwrap();
        let mut learner = Arithmetic::new();
        learner.no_evaluation = Some(missing.clone());
        let client = Client::start(config(&server, state.path()), learner);
        let seen = client.seen.clone();
        assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
        let world = server.world();
        let told = |call: &&Call| matches!(call, Call::Leave(_));
        let told: Vec<_> = world.calls.iter().filter(told).collect();
        assert_eq!(told, [&Call::Leave(Departure::Evaluation(1))], "of the last model only");
        assert_eq!((world.accepted.len(), world.evaluations.len()), (1, 0));
        let seen = seen.lock().unwrap();
        let failed = |event: &&Event| matches!(event, Event::NotEvaluated { why, .. } if why.contains("is gone"));
        let failed = seen.iter().filter(failed).count();
        assert_eq!(failed, if missing.is_err() { 2 } else { 0 });
        let left = seen.iter().any(|event| matches!(event, Event::LeftRound { .. }));
        assert!(!left, "an evaluation that is left out leaves no round");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_learns_the_classes_before_the_first_training_and_a_refusal_names_them() {
    let names = ["cat".to_owned(), "fox".to_owned()];
    let classes = ClassNames::of(&names);
    for refused in [false, true] {
        let server = TestServer::start(World::new(1));
        server.world().refused_classes = refused.then_some(classes.digest);
        let state = tempfile::tempdir().unwrap();
        let mut learner = Arithmetic::new();
        learner.classes = Some(classes.clone());
        let fits = Arc::clone(&learner.fits);
        let client = Client::start(config(&server, state.path()), learner);
        let ended = client.finish().await;
        assert_eq!(
            server.world().classes,
            [[0], [classes.digest]],
            "data is read when it is needed"
        );
        if refused {
            let Err(fl_client::Error::OtherTask(why)) = ended else {
                panic!("{ended:?}");
            };
            assert!(
                why.ends_with("differ from those of the others; this client has `cat`, `fox`"),
                "{why}"
            );
        } else {
            assert_eq!(ended, Ok(Outcome::Done { round: 1 }));
        }
        assert_eq!(fits.load(Ordering::Relaxed), u64::from(!refused));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_the_run_s_task_ends_if_it_was_to_end_with_this_run() {
    let server = TestServer::start(World::new(1));
    let state = tempfile::tempdir().unwrap();
    let config = config(&server, state.path());
    assert!(config.exit_when_done);
    let tasks = Tasks::new().with("another task", Box::new(Arithmetic::new()));
    let ended = fl_client::run(config, tasks, |_| {}, std::future::pending()).await;
    assert!(matches!(ended, Err(fl_client::Error::OtherTask(_))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_keeps_to_the_servers_budget_and_to_the_clients_own() {
    let mut sizes = Vec::new();
    for (budget, most) in [
        (None, None),
        (Some(90), None),
        (None, Some(80)),
        (Some(90), Some(80)),
        (Some(80), Some(90)),
    ] {
        let server = TestServer::start(World::new(3));
        server.world().budget = budget;
        server.world().publish();
        let state = tempfile::tempdir().unwrap();
        let mut config = config(&server, state.path());
        config.max_update_bytes = most;
        let client = Client::start(config, Arithmetic::new());
        assert_eq!(client.finish().await, Ok(Outcome::Done { round: 3 }));
        let world = server.world();
        is_all_of(&world, state.path(), 1..=3);
        sizes.push(world.headers.iter().map(|header| header.len).max().unwrap());
    }
    assert!(sizes[0] > 90, "{sizes:?}");
    assert!(sizes[1] <= 90 && sizes[2..].iter().all(|size| *size <= 80), "{sizes:?}");
}
