//! A client whose run is over or has failed: it waits on its connection, and comes back rarely to a server that ends the watch.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fl_client::{Error, Event, Tasks};
use fl_proto::Phase;

use crate::another_run::another;
use crate::support::{Arithmetic, Client, TestServer, World, config};

/// Waits for an event of the client.
async fn seen(client: &Client, event: impl Fn(&Event) -> bool) {
    while !client.seen.lock().unwrap().iter().any(&event) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_waits_for_the_next_run_on_the_connection_of_the_last() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let mut config = config(&server, state.path());
    config.exit_when_done = false;
    let client = Client::start(config, Arithmetic::new());
    seen(&client, |event| matches!(event, Event::Done { round: 2 })).await;
    {
        let mut world = server.world();
        world.phase = Phase::Failed;
        world.publish();
    }
    seen(&client, |event| matches!(event, Event::Failed { .. })).await;
    assert_eq!(
        server.world().joins(),
        1,
        "news of the run comes on the first connection"
    );

    let next = server.replaced(Arc::new(Mutex::new(another(3)))).await;
    seen(&client, |event| matches!(event, Event::Done { round: 3 })).await;
    assert_eq!(next.world().accepted.len(), 3);
    client.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_the_watch_of_such_a_run_is_not_asked_again_soon() {
    for phase in [Phase::Done, Phase::Failed] {
        let server = TestServer::start(World::new(2));
        {
            let mut world = server.world();
            (world.phase, world.ends) = (phase, true);
            world.publish();
        }
        let state = tempfile::tempdir().unwrap();
        let mut config = config(&server, state.path());
        config.exit_when_done = false;
        // Only a wait that is longer than this ends the client.
        config.give_up_after = Some(Duration::from_secs(600));
        config.backoff.max = Duration::from_secs(3600);
        let ended = Client::start(config, Arithmetic::new()).finish().await;
        let why = "no new run began";
        assert!(
            matches!(&ended, Err(Error::GaveUp(text)) if text.contains(why)),
            "{phase:?}: {ended:?}"
        );
        assert_eq!(server.world().joins(), 1, "{phase:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_task_is_asked_more_and_more_rarely() {
    let server = TestServer::start(World::new(2));
    let state = tempfile::tempdir().unwrap();
    let mut config = config(&server, state.path());
    config.exit_when_done = false;
    config.backoff.max = Duration::from_millis(1);
    config.give_up_after = Some(Duration::from_millis(12));
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let count = move |event| *counted.lock().unwrap() += u32::from(matches!(event, Event::Disconnected { .. }));
    let tasks = Tasks::new().with("another task", Box::new(Arithmetic::new()));
    let ended = fl_client::run(config, tasks, count, std::future::pending()).await;
    assert!(matches!(ended, Err(Error::GaveUp(_))), "{ended:?}");
    // At least 0.5, 1, 2 and 4 ms, and the next wait would pass the limit.
    let asked = *asked.lock().unwrap();
    assert!(asked <= 4, "{asked}");
}
