//! SIGHUP: other settings take hold while a training is in progress, and the training counts once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fl_client::{ConfigReload, Event, Outcome, Reload, When};

use crate::support::{Arithmetic, Call, Client, TestServer, World, config, heard, is_all_of};

/// Sends SIGHUP to this process, in which only the client of this test listens for it.
fn hang_up() {
    let own = std::process::id().to_string();
    let sent = std::process::Command::new("kill").args(["-HUP", &own]).status();
    assert!(sent.unwrap().success());
}

async fn until(what: impl Fn() -> bool + Send + 'static) {
    let wait = move || {
        while !what() {
            std::thread::yield_now();
        }
    };
    tokio::task::spawn_blocking(wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_in_progress_follows_the_new_conditions_and_counts_once() {
    let server = Arc::new(TestServer::start(World::new(1)));
    let state = tempfile::tempdir().unwrap();
    let (done, (begins, began)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let mut learner = Arithmetic::new();
    learner.until = Some((Arc::clone(&done), begins));
    let fits = Arc::clone(&learner.fits);
    // A laptop on battery, and no condition at first.
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("AC/type", "Mains"),
        ("AC/online", "0"),
        ("BAT0/type", "Battery"),
        ("BAT0/status", "Discharging"),
    ] {
        let path = root.path().join("sys/class/power_supply").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut plain = config(&server, state.path());
    plain.when.max_pause = Duration::from_secs(3600);
    plain.when.surroundings.root = root.path().to_owned();
    let on_mains = Arc::new(Mutex::new(Ok::<_, String>(false)));
    let (asked, again) = (Arc::clone(&on_mains), plain.clone());
    plain.reload = Some(Reload::new(move || {
        let mut config = again.clone();
        config.when = When {
            on_mains: asked.lock().unwrap().clone()?,
            ..config.when
        };
        let ignored = vec!["tasks"];
        Ok(ConfigReload { config, ignored })
    }));
    let client = Client::start(plain, learner);
    heard(began).await;
    let progress = client.seen.lock().unwrap().iter().find_map(|event| match event {
        Event::Training { progress, .. } => Some(Arc::clone(progress)),
        _ => None,
    });
    let progress = progress.unwrap();
    let joined = |times: usize| {
        let server = Arc::clone(&server);
        until(move || server.world().joins() == times)
    };
    let set = |value: Result<bool, String>| *on_mains.lock().unwrap() = value;

    set(Ok(true));
    hang_up();
    let paused = Arc::clone(&progress);
    until(move || paused.is_resting()).await;
    joined(2).await;
    // A configuration that cannot be read changes nothing.
    set(Err("client.toml is broken".to_owned()));
    hang_up();
    set(Ok(false));
    hang_up();
    let resumed = Arc::clone(&progress);
    until(move || !resumed.is_resting()).await;
    joined(3).await;
    done.store(true, Ordering::SeqCst);
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
    assert_eq!(fits.load(Ordering::SeqCst), 1);
    let world = server.world();
    is_all_of(&world, state.path(), 1..=1);
    assert!(
        !world.calls.iter().any(|call| matches!(call, Call::Leave(_))),
        "{:?}",
        world.calls
    );
}
