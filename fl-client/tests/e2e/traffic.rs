//! The traffic log of the client: every byte on its sockets is reported exactly once, in its round.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use crate::support::{Arithmetic, Call, Certificates, Client, Fault, Seen, TestServer, World, config, heard};
use fl_client::{Event, Outcome};

/// Bytes sent and received per round, and the number of events that report them.
fn traffic(seen: &Seen) -> BTreeMap<u64, (u64, u64, usize)> {
    let mut rounds = BTreeMap::<_, (u64, u64, usize)>::new();
    for event in seen.lock().unwrap().iter() {
        if let Event::Traffic { round, sent, received } = event {
            let sum = rounds.entry(*round).or_default();
            *sum = (sum.0 + sent, sum.1 + received, sum.2 + 1);
        }
    }
    rounds
}

fn sum(rounds: &BTreeMap<u64, (u64, u64, usize)>) -> (u64, u64) {
    rounds.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_round_is_told_once_and_the_sum_is_what_the_sockets_carried() {
    let server = TestServer::start(World::new(4));
    let state = tempfile::tempdir().unwrap();
    let config = config(&server, state.path());
    let meter = Arc::clone(&config.meter);
    let client = Client::start(config, Arithmetic::new());
    let seen = client.seen.clone();
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 4 }));

    let rounds = traffic(&seen);
    assert_eq!(sum(&rounds), (meter.written(), meter.read()));
    assert!(rounds.keys().copied().eq(1..=4), "{rounds:?}");
    assert!(rounds.values().all(|(_, _, told)| *told == 1), "{rounds:?}");
    for (round, _, frame) in &server.world().accepted {
        assert!(rounds[round].0 > frame.len() as u64, "{rounds:?}");
    }
    // The handshakes and the initial model count towards the first round.
    assert!(rounds[&1].1 > rounds[&2].1, "{rounds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_are_booked_to_the_round_in_which_they_broke() {
    let server = TestServer::start(World::new(3));
    server
        .world()
        .faults
        .extend([Fault::CutAfter(10), Fault::CutAfter(20), Fault::LoseReceipt]);
    let state = tempfile::tempdir().unwrap();
    let config = config(&server, state.path());
    let meter = Arc::clone(&config.meter);
    let client = Client::start(config, Arithmetic::new());
    let seen = client.seen.clone();
    assert_eq!(client.finish().await, Ok(Outcome::Done { round: 3 }));

    let rounds = traffic(&seen);
    assert_eq!(sum(&rounds), (meter.written(), meter.read()));
    assert!(rounds.keys().copied().eq(1..=3), "{rounds:?}");
    let breaks = seen
        .lock()
        .unwrap()
        .iter()
        .filter(|event| matches!(event, Event::Disconnected { .. }))
        .count();
    assert!(breaks >= 3);
    assert_eq!(
        rounds.values().map(|(_, _, told)| told).sum::<usize>(),
        3 + breaks,
        "{rounds:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_stopped_in_a_round_books_its_last_bytes() {
    let server = TestServer::start(World::new(3));
    let (told, submitted) = mpsc::channel();
    server.world().faults.push_back(Fault::HangAfter(5));
    server.world().hook = Some(Box::new(move |call| {
        if matches!(call, Call::Taken) {
            told.send(()).unwrap();
        }
    }));
    let state = tempfile::tempdir().unwrap();
    let config = config(&server, state.path());
    let meter = Arc::clone(&config.meter);
    let client = Client::start(config, Arithmetic::new());
    let seen = client.seen.clone();
    heard(submitted).await;
    assert_eq!(client.stop().await, Outcome::Stopped);
    let rounds = traffic(&seen);
    assert_eq!(meter.open(), 0);
    assert_eq!(sum(&rounds), (meter.written(), meter.read()));
    assert!(rounds.keys().copied().eq([1]), "{rounds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_share_a_meter_book_their_own_bytes_alone() {
    let total = Arc::default();
    let mut seen = Vec::new();
    let mut running = Vec::new();
    for rounds in [2, 3] {
        let server = TestServer::start(World::new(rounds));
        let state = tempfile::tempdir().unwrap();
        let mut config = config(&server, state.path());
        config.meter = Arc::clone(&total);
        let client = Client::start(config, Arithmetic::new());
        seen.push(client.seen.clone());
        running.push((server, state, client));
    }
    for (_server, _state, client) in running {
        client.finish().await.unwrap();
    }
    let (one, other) = (sum(&traffic(&seen[0])), sum(&traffic(&seen[1])));
    assert_eq!((one.0 + other.0, one.1 + other.1), (total.written(), total.read()));
    assert!(one.0 > 0 && one.0 < other.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_for_nothing_are_booked_to_no_round() {
    let mut server = TestServer::start(World::new(1));
    server.certificates = Certificates::new("another");
    let state = tempfile::tempdir().unwrap();
    let config = config(&server, state.path());
    let meter = Arc::clone(&config.meter);
    let client = Client::start(config, Arithmetic::new());
    let seen = client.seen.clone();
    client.finish().await.unwrap_err();
    let rounds = traffic(&seen);
    assert!(rounds.keys().copied().eq([0]), "{rounds:?}");
    assert_eq!(sum(&rounds), (meter.written(), meter.read()));
}
