//! The wall clock jumps during a run.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::*;
use fl_proto::{Phase, UpdateReply};
use fl_server::Event;
use fl_server::disk::Disk;
use fl_server::store::Store;

const HOUR: i64 = 3_600_000;
/// Much longer than a round of these tests, much shorter than a jump.
const PATIENCE: Duration = Duration::from_secs(120);

fn system() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64
}

/// The log up to the end of the first round.
async fn first_round(server: &mut Server) -> Vec<Event> {
    let mut events = Vec::new();
    let closed = async {
        while let Some(event) = server.events.recv().await {
            let over = matches!(event, Event::RoundClosed(_));
            events.push(event);
            if over {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, closed)
        .await
        .expect("the round closes by its deadline");
    events
}

#[tokio::test]
async fn a_clock_set_back_by_an_hour_does_not_stop_the_run() {
    static JUMP: AtomicI64 = AtomicI64::new(0);
    let fed = Fed::new();
    let options = || {
        let mut options = fed.options(&Run::default().clients(2));
        (options.plan.cohort.min, options.plan.cohort.deadline) = (1, 1_000);
        options.clock = || (system() + JUMP.load(Ordering::Relaxed)) as u64;
        options
    };
    let mut server = Server::start(options()).await;
    let (mut anna, mut berta) = (fed.client("anna", &server).await, fed.client("berta", &server).await);
    let (mut watch, _berta_is_there) = (anna.watch().await, berta.watch().await);
    let state = TestClient::until(&mut watch, |state| state.phase == Phase::Training).await;
    anna.try_update_model(state.version).await.unwrap();
    JUMP.store(-HOUR, Ordering::Relaxed);
    assert_eq!(anna.send(1).await, UpdateReply::Accepted);
    let events = first_round(&mut server).await;
    assert!(matches!(events.last(), Some(Event::RoundClosed(summary)) if summary.updates == 1));
    server.stop().await;

    // The times of the records do not go back after a restart either.
    Server::start(options()).await.stop().await;
    let store = Store::open(&fed.data(), Disk::new(None)).unwrap();
    let records = store.run(&"test".parse().unwrap()).unwrap();
    let times: Vec<_> = records.records().filter_map(|record| record.unwrap().at()).collect();
    assert!(times.len() > 4 && times.is_sorted(), "{times:?}");
}

#[tokio::test]
async fn a_clock_set_forward_by_two_hours_ends_no_round_early() {
    static JUMP: AtomicI64 = AtomicI64::new(0);
    let fed = Fed::new();
    let mut options = fed.options(&Run::rounds(1).clients(2));
    options.plan.cohort.deadline = HOUR as u64;
    options.clock = || (system() + JUMP.load(Ordering::Relaxed)) as u64;
    let mut server = Server::start(options).await;
    let mut hands = [fed.client("anna", &server).await, fed.client("berta", &server).await];
    let mut watches = [hands[0].watch().await, hands[1].watch().await];
    for watch in &mut watches {
        TestClient::until(watch, |state| state.phase == Phase::Training).await;
    }
    JUMP.store(2 * HOUR, Ordering::Relaxed);
    for hand in &mut hands {
        hand.try_update_model(0).await.unwrap();
        assert_eq!(hand.send(1).await, UpdateReply::Accepted);
    }
    let events = first_round(&mut server).await;
    assert!(matches!(events.last(), Some(Event::RoundClosed(summary)) if summary.updates == 2));
    let again = |event: &Event| matches!(event, Event::RoundOpened { attempt, .. } if *attempt > 1);
    assert!(!events.iter().any(again), "{events:?}");
    server.stop().await;
}
