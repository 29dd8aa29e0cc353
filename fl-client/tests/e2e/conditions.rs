//! `[when]`: a client that may not train leaves the round, and a training that must stop pauses.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fl_client::{ClientConfig, Event, Outcome, When};
use fl_proto::{Availability, Departure};
use tempfile::TempDir;

use crate::support::{Arithmetic, Call, Client, TestServer, World, config, heard, is_all_of};

/// A laptop, in a folder that takes the place of `/`.
struct Laptop(TempDir);

impl Laptop {
    fn new(on_mains: bool) -> Self {
        let laptop = Self(tempfile::tempdir().unwrap());
        for (file, text) in [
            ("AC/type", "Mains"),
            ("BAT0/type", "Battery"),
            ("BAT0/status", "Discharging"),
        ] {
            laptop.write(file, text);
        }
        laptop.plug(on_mains);
        laptop
    }

    /// Replaces the file as the kernel does: a reader sees the old or the new text.
    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join("sys/class/power_supply").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    fn plug(&self, on_mains: bool) {
        self.write("AC/online", if on_mains { "1\n" } else { "0\n" });
    }

    fn config(&self, server: &TestServer, state: &Path) -> ClientConfig {
        let mut config = config(server, state);
        config.when = When {
            on_mains: true,
            every: Duration::from_millis(1),
            settle: Duration::ZERO,
            max_pause: Duration::from_secs(3600),
            ..When::default()
        };
        config.when.surroundings.root = self.0.path().to_owned();
        config
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_laptop_on_battery_leaves_its_rounds_until_it_is_on_mains() {
    let server = TestServer::start(World::new(1_000_000));
    let (told, calls) = mpsc::channel();
    server.world().hook = Some(Box::new(move |call| {
        if matches!(call, Call::Leave(_) | Call::Submit { .. }) {
            told.send(call.clone()).unwrap();
        }
    }));
    let (state, laptop) = (tempfile::tempdir().unwrap(), Laptop::new(false));
    let client = Client::start(laptop.config(&server, state.path()), Arithmetic::new());
    let calls = Arc::new(std::sync::Mutex::new(calls));
    let next = || {
        let calls = Arc::clone(&calls);
        async move {
            tokio::task::spawn_blocking(move || calls.lock().unwrap().recv().unwrap())
                .await
                .unwrap()
        }
    };
    let nothing = vec![0.0; crate::support::layout().len()];
    for round in 1..=3 {
        assert_eq!(next().await, Call::Leave(Departure::Paused(round)));
        server.world().advance(&nothing);
    }
    laptop.plug(true);
    while let Call::Leave(_) = next().await {
        server.world().advance(&nothing);
    }
    let seen = client.seen.clone();
    assert_eq!(client.stop().await, Outcome::Stopped);
    let seen = seen.lock().unwrap();
    let left = seen.iter().find_map(|event| match event {
        Event::LeftRound { round: 1, why } => Some(why.clone()),
        _ => None,
    });
    assert_eq!(left.unwrap(), "on battery: BAT0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_pauses_on_battery_and_resumes_on_mains() {
    let server = TestServer::start(World::new(1));
    let (state, laptop) = (tempfile::tempdir().unwrap(), Laptop::new(true));
    let (done, (begins, began)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let mut learner = Arithmetic::new();
    learner.until = Some((Arc::clone(&done), begins));
    let fits = Arc::clone(&learner.fits);
    let client = Client::start(laptop.config(&server, state.path()), learner);
    let seen = client.seen.clone();
    heard(began).await;
    let progress = seen.lock().unwrap().iter().find_map(|event| match event {
        Event::Training { progress, .. } => Some(Arc::clone(progress)),
        _ => None,
    });
    let progress = progress.unwrap();
    laptop.plug(false);
    let resting = move || {
        while !progress.is_resting() {
            std::thread::yield_now();
        }
    };
    tokio::task::spawn_blocking(resting).await.unwrap();
    done.store(true, Ordering::SeqCst);
    assert_eq!(fits.load(Ordering::SeqCst), 0);
    laptop.plug(true);
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 1 }));
    let world = server.world();
    is_all_of(&world, state.path(), 1..=1);
    assert!(!world.calls.iter().any(|call| matches!(call, Call::Leave(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_told_whether_the_client_is_available() {
    let server = TestServer::start(World::new(1_000_000));
    let (told, reports) = mpsc::channel();
    server.world().hook = Some(Box::new(move |call| {
        if matches!(call, Call::Leave(_) | Call::Reports(_)) {
            told.send(call.clone()).unwrap();
        }
    }));
    let (state, laptop) = (tempfile::tempdir().unwrap(), Laptop::new(false));
    let client = Client::start(laptop.config(&server, state.path()), Arithmetic::new());
    let reports = Arc::new(std::sync::Mutex::new(reports));
    let next = || {
        let reports = Arc::clone(&reports);
        async move {
            tokio::task::spawn_blocking(move || reports.lock().unwrap().recv().unwrap())
                .await
                .unwrap()
        }
    };
    let reason = || "on battery: BAT0".to_owned();
    let paused = || Call::Reports(Availability::Paused { reason: reason() });
    assert_eq!(next().await, paused());
    assert_eq!(next().await, Call::Leave(Departure::Paused(1)));
    laptop.plug(true);
    assert_eq!(next().await, Call::Reports(Availability::Available));
    laptop.plug(false);
    assert_eq!(next().await, paused());
    assert_eq!(client.stop().await, Outcome::Stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_that_may_not_pause_any_longer_leaves_the_round() {
    let server = TestServer::start(World::new(2));
    let (told, left) = mpsc::channel();
    server.world().hook = Some(Box::new(move |call| {
        if let Call::Leave(departure) = call {
            assert_eq!(*departure, Departure::Paused(1));
            told.send(()).unwrap();
        }
    }));
    let (state, laptop) = (tempfile::tempdir().unwrap(), Laptop::new(true));
    let (done, (begins, began)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let mut learner = Arithmetic::new();
    learner.until = Some((Arc::clone(&done), begins));
    let mut config = laptop.config(&server, state.path());
    config.when.max_pause = Duration::ZERO;
    let client = Client::start(config, learner);
    heard(began).await;
    laptop.plug(false);
    heard(left).await;
    assert_eq!(client.stop().await, Outcome::Stopped);
    assert!(server.world().accepted.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_below_one_round_is_told_when_the_run_is_joined() {
    let server = TestServer::start(World::new(2));
    let (told, reports) = mpsc::channel();
    server.world().hook = Some(Box::new(move |call| {
        if let Call::Reports(availability) = call {
            told.send(availability.clone()).unwrap();
        }
    }));
    let state = tempfile::tempdir().unwrap();
    let mut config = config(&server, state.path());
    config.limits.per_day = Some(1 << 10);
    let client = Client::start(config, Arithmetic::new());
    let report = tokio::task::spawn_blocking(move || reports.recv().unwrap())
        .await
        .unwrap();
    let Availability::Paused { reason } = report else {
        panic!("{report:?}")
    };
    assert!(
        reason.starts_with("a round takes ") && reason.ends_with("`limits.per_day` is 0.0 MiB: raise it"),
        "{reason}"
    );
    assert_eq!(client.stop().await, Outcome::Stopped);
    assert!(server.world().accepted.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_of_a_day_are_those_on_the_sockets_also_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let mut sum = 0;
    for _ in 0..2 {
        let server = TestServer::start(World::new(3));
        let mut config = config(&server, state.path());
        config.limits.per_day = Some(1 << 30);
        config.when.surroundings.clock = || fl_client::Moment {
            unix: 1_795_431_600,
            offset: 0,
        };
        let client = Client::start(config, Arithmetic::new());
        let seen = client.seen.clone();
        assert_eq!(client.finish().await, Ok(Outcome::Done { round: 3 }));
        let moved = |event: &Event| match event {
            Event::Traffic { sent, received, .. } => sent + received,
            _ => 0,
        };
        sum += seen.lock().unwrap().iter().map(moved).sum::<u64>();
        let file = std::fs::read(state.path().join("traffic")).unwrap();
        let mut counts = fl_compress::wire::unseal(&file, b"FLTR", [1, 0]).unwrap();
        let (_, _, bytes_of_day, _): (u32, u32, u64, u64) = counts.value("counts").unwrap();
        assert_eq!(bytes_of_day, sum);
        std::fs::remove_dir_all(state.path().join("runs")).unwrap();
    }
}
