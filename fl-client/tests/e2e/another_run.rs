//! A new run with the same name: the state of the earlier run neither leaks into it nor is lost.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use crate::crashes::{crash, goes_on};
use crate::support::{Arithmetic, Call, Client, Fault, TestServer, World, config, heard, is_all_of};
use fl_client::Outcome;
use fl_compress::Digest;

/// A new run with the name that all tests use, starting from the same model.
pub(crate) fn another(rounds: u64) -> World {
    let mut world = World::new(rounds);
    world.instance = Digest::of(b"another");
    world
}

fn aside(state: &Path, world: &World) -> std::path::PathBuf {
    let owner = Digest::of(&[&world.instance.0, world.client.as_bytes()].concat());
    state.join("aside").join(format!("test-run-{owner}"))
}

/// A cloned disk, or a backup of another device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_folder_of_another_client_is_set_aside() {
    let mut server = TestServer::start(World::new(3));
    server.world().faults.extend([Fault::HangAfter(0)]);
    let state = crash(&server, Call::Submit { round: 1, offset: 0 }).await;
    let of_alpha = aside(state.path(), &server.world());
    server.world().client = "beta";
    server.certificates.client = server.certificates.client_of("beta");
    assert_eq!(goes_on(&server, state.path()).await, 3, "round 1 is trained again");
    assert!(of_alpha.join("memory").is_file());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_frame_and_residual_of_another_run_are_set_aside_and_come_back_with_it() {
    let first = TestServer::start(World::new(3));
    first.world().faults.extend([Fault::HangAfter(0)]);
    let state = crash(&first, Call::Submit { round: 1, offset: 0 }).await;
    let second = TestServer::start(another(3));

    assert_eq!(goes_on(&second, state.path()).await, 3);
    {
        let world = second.world();
        assert_eq!(
            world.calls[0],
            Call::Join { pending: Some(1) },
            "the client cannot know before"
        );
        assert!(
            !world.calls.iter().any(|call| matches!(call, Call::Offer { .. })),
            "{:?}",
            world.calls
        );
        is_all_of(&world, state.path(), 1..=3);
        assert!(aside(state.path(), &first.world()).join("memory").is_file());
    }

    first.world().calls.clear();
    assert_eq!(goes_on(&first, state.path()).await, 2, "round 1 is not trained again");
    let world = first.world();
    assert!(
        world.calls.contains(&Call::Submit { round: 1, offset: 0 }),
        "{:?}",
        world.calls
    );
    is_all_of(&world, state.path(), 1..=3);
    assert!(!aside(state.path(), &world).exists());
    assert!(aside(state.path(), &second.world()).join("memory").is_file());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_with_another_run_of_the_name_gets_nothing_of_the_first() {
    let server = TestServer::start(World::new(5));
    let (told, hanging) = mpsc::channel();
    server.world().hook = Some(Box::new(move |call| {
        if matches!(call, Call::Submit { round: 1, .. }) {
            let _ = told.send(());
        }
    }));
    server.world().faults.push_back(Fault::HangAfter(0));
    let state = tempfile::tempdir().unwrap();
    let client = Client::start(config(&server, state.path()), Arithmetic::new());
    heard(hanging).await;
    let before = server.world.clone();
    let server = server.replaced(Arc::new(Mutex::new(another(3)))).await;
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 3 }));
    let world = server.world();
    assert_eq!(world.accepted.len(), 3);
    is_all_of(&world, state.path(), 1..=3);
    assert!(aside(state.path(), &before.lock().unwrap()).join("memory").is_file());
}
