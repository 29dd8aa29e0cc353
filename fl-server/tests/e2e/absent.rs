//! Clients that leave in the middle of a run.

use std::time::Duration;

use crate::support::*;
use fl_proto::{Departure, JoinRequest, LeaveRequest, Phase, UpdateReply, wire};
use fl_server::{Event, Serve};
use tonic::Code;

const HOUR: u64 = 3_600_000;
/// Much longer than a round of these tests, much shorter than a deadline or a grace.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run in which every timeout is an hour, except that for absent clients.
fn patient(fed: &Fed, clients: usize, min: usize, absent: u64) -> Serve {
    let mut options = fed.options(&Run::default().clients(clients));
    let cohort = &mut options.plan.cohort;
    (cohort.min, cohort.absent) = (min, absent);
    (cohort.grace, cohort.deadline) = (HOUR, HOUR);
    options
}

async fn leave(hand: &mut TestClient, departure: Departure, reason: &str) {
    let leave = LeaveRequest {
        run: "test".parse().unwrap(),
        departure,
        reason: reason.into(),
    };
    hand.calls.leave(wire::LeaveRequest::from(leave)).await.unwrap();
}

async fn closed(server: &mut Server, round: u64) -> usize {
    let closed = async {
        loop {
            if let Event::RoundClosed(summary) = server.events.recv().await.unwrap()
                && summary.round == round
            {
                return summary.updates;
            }
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("the round closes")
}

#[tokio::test]
async fn a_client_that_dies_costs_its_round_the_absence_and_the_next_nothing() {
    let fed = Fed::new();
    let mut server = Server::start(patient(&fed, 3, 2, 100)).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[2], |state| state.phase == Phase::Training).await;
    drop((hands.pop(), watches.pop()));
    for round in 1..=2 {
        for (hand, watch) in hands.iter_mut().zip(&mut watches) {
            let state = TestClient::until_round(watch, round).await;
            hand.try_update_model(state.version).await.unwrap();
            assert_eq!(hand.send(round).await, UpdateReply::Accepted);
        }
        assert_eq!(closed(&mut server, round).await, 2);
    }
    server.stop().await;
}

/// The next line about a client.
async fn said(server: &mut Server) -> String {
    let line = async {
        loop {
            if let Event::Client { line: Some(line), .. } = server.events.recv().await.unwrap() {
                return line;
            }
        }
    };
    tokio::time::timeout(PATIENCE, line).await.expect("the server says so")
}

#[tokio::test]
async fn a_client_that_fails_leaves_and_returns_has_a_line_for_each_and_few_if_it_does_so_again_and_again() {
    let fed = Fed::new();
    let mut server = Server::start(patient(&fed, 3, 2, HOUR)).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = in_training(&mut hands).await;
    // Said in each round, and once: not of a round that is not open, nor again of the same.
    for (round, reason) in [(2, "too early"), (1, "NameError: x\n(train.py:16)"), (1, "again")] {
        leave(&mut hands[1], Departure::Round(round), reason).await;
    }
    let failed = "berta failed in round 1: NameError: x (train.py:16); it tries again in round 2";
    assert_eq!(said(&mut server).await, failed);
    drop(watches.pop());
    assert_eq!(said(&mut server).await, "carl left");
    let watch = hands[2].watch().await;
    assert_eq!(said(&mut server).await, "carl is back");
    drop(watch);
    assert_eq!(said(&mut server).await, "carl left");
    let watch = hands[2].watch().await;
    assert_eq!(said(&mut server).await, "carl is back");
    drop(watch);
    let last = "carl left; its further changes in this round are not logged";
    assert_eq!(said(&mut server).await, last);
    watches.push(hands[2].watch().await);
    drop(watches.remove(0));
    assert_eq!(said(&mut server).await, "anna left");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_says_that_it_leaves_is_replaced_at_once() {
    let fed = Fed::new();
    let mut server = Server::start(patient(&fed, 2, 2, HOUR)).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = [hands[0].watch().await, hands[1].watch().await];
    for watch in &mut watches {
        let state = TestClient::until(watch, |state| state.phase == Phase::Training).await;
        assert!(state.selected);
    }
    let mut late = hands[2].watch().await;
    assert!(!TestClient::until(&mut late, |_| true).await.selected);
    leave(&mut hands[1], Departure::Learner, "another model").await;
    let state = tokio::time::timeout(PATIENCE, TestClient::until(&mut late, |state| state.selected)).await;
    assert_eq!(state.expect("it is asked in place of the other").attempt, 1);
    for at in [0, 2] {
        hands[at].try_update_model(0).await.unwrap();
        assert_eq!(hands[at].send(1).await, UpdateReply::Accepted);
    }
    assert_eq!(closed(&mut server, 1).await, 2);
    server.stop().await;
}

#[tokio::test]
async fn clients_that_cannot_take_part_are_told_of_once_each() {
    let fed = Fed::new();
    let mut server = fed.start(&Run::default()).await;
    std::fs::write(fed.dir.path().join("revoked"), "carl\n").unwrap();
    // A certificate of another federation; the server knows only the address.
    let foreign = Fed::new().issue("dora");
    for _ in 0..3 {
        // In TLS 1.3 a client learns about a refused certificate only after its own handshake.
        if let Ok(mut dora) = TestClient::dial(&server.address, &fed.root.certificate, &foreign).await {
            dora.join(None).await.unwrap_err();
        }
    }
    let first = loop {
        if let Event::TurnedAway { client, reason, .. } = server.events.recv().await.unwrap() {
            break (client, reason);
        }
    };
    assert_eq!(first, ("127.0.0.1".to_owned(), "certificate"));
    let own = fed.issue("carl");
    let carl = TestClient::dial(&server.address, &fed.root.certificate, &own);
    let mut carl = carl.await.unwrap();
    let mut anna = fed.client("anna", &server).await;
    let other = || {
        wire::JoinRequest::from(JoinRequest {
            tasks: vec!["other".into()],
            pending: None,
            ..JoinRequest::default()
        })
    };
    for _ in 0..3 {
        assert_eq!(carl.join(None).await.unwrap_err().code(), Code::PermissionDenied);
        let refused = anna.calls.join(other()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
    }
    let mut berta = fed.client("berta", &server).await;
    leave(&mut berta, Departure::Learner, "a.weight is [3], not [40, 25]").await;
    let events = std::iter::from_fn(|| server.events.try_recv().ok());
    let turned: Vec<_> = events
        .filter_map(|event| match event {
            Event::TurnedAway { client, reason, .. } => Some((client, reason)),
            _ => None,
        })
        .collect();
    let expected = [("carl", "revoked"), ("anna", "task"), ("berta", "learner")];
    assert_eq!(turned, expected.map(|(client, reason)| (client.to_owned(), reason)));
    server.stop().await;
}

/// Cohorts of one client, and two clients take turns: the first is asked in attempts 1 and 3.
#[tokio::test]
async fn a_slow_upload_of_an_earlier_attempt_stays_refused_when_its_client_is_asked_again() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::rounds(1).clients(1));
    (options.plan.cohort.deadline, options.plan.cohort.retries) = (500, 1_000);
    let server = Server::start(options).await;
    let (mut anna, mut berta) = (fed.client("anna", &server).await, fed.client("berta", &server).await);
    let mut watch = anna.watch().await;
    let first = TestClient::until(&mut watch, |state| state.selected).await.attempt;
    let _berta_is_there = berta.watch().await;
    anna.try_update_model(0).await.unwrap();
    let frame = anna.encode(1);
    let mut header = anna.header(1, &frame);
    header.id.attempt = first;

    let (parts, slow) = upload(&header, &frame[..10]).await;
    let mut calls = anna.calls.clone();
    let upload = tokio::spawn(async move { calls.submit(slow).await });
    TestClient::until(&mut watch, |state| state.phase == Phase::Training && !state.selected).await;
    assert!(matches!(anna.offer(&header).await, UpdateReply::Refused { .. }));

    let again = TestClient::until(&mut watch, |state| state.selected).await.attempt;
    assert!(again > first, "{again}");
    parts.send(data_chunk(&frame[10..])).await.unwrap();
    drop(parts);
    let reply = UpdateReply::try_from(upload.await.unwrap().unwrap().into_inner()).unwrap();
    assert!(matches!(reply, UpdateReply::Refused { .. }), "{reply:?}");
    assert!(matches!(anna.offer(&header).await, UpdateReply::Refused { .. }));
    server.stop().await;
}
