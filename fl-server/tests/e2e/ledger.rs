//! The ledger equals the bytes on the sockets of both sides; and the behavior of a server with a full disk.

use std::sync::Arc;

use crate::support::*;
use fl_proto::UpdateReply;
use fl_server::disk::{Fault, FaultKind};
use fl_server::ledger::Direction;
use fl_server::{Ending, Event};

/// Bytes of the close alert of TLS 1.3.
const CLOSE_NOTIFY: u64 = 24;

#[tokio::test]
async fn the_ledger_is_the_meter_and_the_clients_own_meters_to_the_byte() {
    let fed = Fed::new();
    let server = fed.start(&Run::rounds(3).evaluate().compression(SPARSE)).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    let meters: Vec<_> = hands
        .iter()
        .map(|hand| (hand.name.clone(), Arc::clone(&hand.meter)))
        .collect();
    let frames: u64 = hands.iter().map(|hand| hand.sent).sum();
    drop(hands);
    let outcome = server.end().await;

    let ledger = fed.ledger();
    assert!(ledger.is_balanced());
    let total = ledger.total();
    assert_eq!((total.socket_up, total.socket_down), outcome.socket);
    assert_eq!((total.update, total.waste()), (frames, 0));
    assert!(total.snapshot > 0 && total.steps > 0);
    assert!(total.socket_up > total.frames_up() && total.socket_down > total.frames_down());
    assert_eq!(total.kinds().iter().map(|kind| kind.2).sum::<u64>(), total.socket());
    assert!(total.evaluation > 0 && total.control_up > 0 && total.control_down > 0);
    assert_eq!((total.connections, total.retries), (3, 0));
    let clients = ledger.clients();
    assert_eq!(clients.len(), 3, "every byte has an owner: {clients:?}");
    for (name, meter) in meters {
        let flow = clients[&Some(name.parse().unwrap())];
        assert_eq!(flow.socket_up, meter.written(), "{name}");
        // A client that closes first does not read the close alert of the server.
        let unread = flow.socket_down - meter.read();
        assert!(unread == 0 || unread == CLOSE_NOTIFY, "{name}: {unread}");
    }
    for round in 1..=3 {
        let flow = ledger.rounds()[&round];
        assert_eq!((flow.socket_up, flow.socket_down), ledger.metered_in(round));
        assert!(ledger.entries.contains_key(&round));
        let bytes = |direction| {
            let sections = &ledger.sections[&(round, direction)];
            sections
                .iter()
                .map(|s| s.recipe + s.indices + s.scales + s.values)
                .sum::<u64>()
        };
        // Bytes of a frame outside its sections: header and checksum.
        let beside = |framed: u64, sections: u64, frames: u64| framed > sections && framed - sections < 60 * frames;
        assert!(beside(flow.update, bytes(Direction::Up), 3), "{flow:?}");
        assert!(bytes(Direction::Down) > 0);
    }
}

#[tokio::test]
async fn refused_frames_are_waste_and_a_restart_goes_on_booking() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[0], |state| state.round == 1).await;
    let frame = hands[0].encode(1);
    let mut broken = frame.clone();
    broken[20] ^= 1;
    assert!(matches!(
        hands[0].submit_frame(1, &broken).await,
        UpdateReply::Refused { .. }
    ));
    assert_eq!(hands[0].submit_frame(1, &frame).await, UpdateReply::Accepted);
    drop((watches, hands));
    let first = server.stop().await;

    let server = fed.start(&Run::default()).await;
    fed.client("anna", &server).await;
    let second = server.stop().await;
    let ledger = fed.ledger();
    let total = ledger.total();
    assert_eq!((total.update, total.waste()), (frame.len() as u64, frame.len() as u64));
    assert!(ledger.is_balanced());
    assert_eq!(total.socket_up, first.socket.0 + second.socket.0);
    assert_eq!(total.socket_down, first.socket.1 + second.socket.1);
}

#[tokio::test]
async fn a_full_disk_stops_the_server_names_the_path_and_loses_nothing() {
    let undisturbed = {
        let fed = Fed::new();
        let counter = Arc::new(Fault::new(FaultKind::Full, u64::MAX));
        let mut options = fed.options(&Run::default());
        options.fault = Some(Arc::clone(&counter));
        let server = Server::start(options).await;
        let mut hands = fed.clients(&server).await;
        all_take_part(&mut hands).await;
        drop(hands);
        (server.end().await.model, counter.seen())
    };
    let (model, points) = undisturbed;
    // Samples the points, as each takes a whole run.
    for at in (1..points).step_by(points as usize / 12) {
        let fed = Fed::new();
        let mut options = fed.options(&Run::default());
        options.fault = Some(Arc::new(Fault::new(FaultKind::Full, at)));
        let server = Server::start(options).await;
        let address = server.address.clone();
        let attempts = NAMES.map(|name| {
            let (own, root, address) = (fed.issue(name), fed.root.certificate.clone(), address.clone());
            async move {
                let Ok(mut hand) = TestClient::dial(&address, &root, &own).await else {
                    return;
                };
                if hand.join(None).await.is_ok() {
                    hand.try_take_part(name).await;
                }
            }
        });
        let all = join_all(attempts.into_iter().collect());
        let both = async { tokio::join!(server.result(), all).0 };
        let result = tokio::time::timeout(std::time::Duration::from_secs(30), both).await;
        let result = result.unwrap_or_else(|_| panic!("point {at}: the server went on"));
        let error = match result {
            // The run did not reach the point: the order of writes varies between runs.
            Ok(outcome) => {
                assert_eq!((outcome.ending, outcome.model), (Ending::Done, model));
                continue;
            }
            Err(error) => error.to_string(),
        };
        let names_path = error.contains(fed.dir.path().to_str().unwrap());
        assert!(names_path && error.contains("free some space"), "point {at}: {error}");

        // The failed write may have been the last of the run; then the clients learn that the run is over.
        let mut options = fed.options(&Run::default());
        options.exit_when_done = false;
        let mut server = Server::start(options).await;
        if server.events.recv().await != Some(Event::Ready) {
            panic!("point {at}: {error}; then {:?}", server.result().await);
        }
        let mut hands = fed.clients(&server).await;
        all_take_part(&mut hands).await;
        drop(hands);
        let outcome = server.stop().await;
        assert_eq!((outcome.ending, outcome.model), (Ending::Done, model), "point {at}");
    }
}

#[tokio::test]
async fn no_alert_is_raised_while_the_books_balance() {
    let fed = Fed::new();
    let mut server = fed.start(&Run::rounds(5)).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    drop(hands);
    while let Some(event) = server.events.recv().await {
        assert!(!matches!(event, Event::Alert(_)), "{event:?}");
    }
    server.end().await;
}
