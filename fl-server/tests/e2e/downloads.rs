//! A download that was interrupted continues where it stopped: within a frame, after newer versions, and after a restart.

use fl_compress::Digest;
use fl_proto::{ModelHeader, PartialFrame, UpdateReply};
use fl_server::Serve;
use tonic::Code;

use crate::support::*;

fn options(fed: &Fed) -> Serve {
    fed.options(&Run::rounds(9).compression(SPARSE))
}

/// Closes the rounds `from` to `to`.
async fn close_rounds(hands: &mut [TestClient], from: u64, to: u64) {
    let mut watches = watch_all(hands).await;
    for round in from..=to {
        for (hand, watch) in hands.iter_mut().zip(&mut watches) {
            TestClient::until(watch, |state| state.round == round && state.selected).await;
            assert_eq!(hand.send(round).await, UpdateReply::Accepted);
        }
    }
    TestClient::until(&mut watches[0], |state| state.version == to).await;
}

fn partial(digest: Digest, held: u64) -> Option<PartialFrame> {
    Some(PartialFrame { digest, held })
}

async fn fetch(
    hand: &mut TestClient,
    held: Option<u64>,
    want: u64,
    partial: Option<PartialFrame>,
) -> (ModelHeader, Vec<u8>) {
    hand.fetch_bytes(fetch_request(held, want, partial)).await.unwrap()
}

#[tokio::test]
async fn a_frame_continues_at_the_byte_that_the_client_lacks() {
    let fed = Fed::new();
    let server = Server::start(options(&fed)).await;
    let mut hands = fed.clients(&server).await;
    close_rounds(&mut hands, 1, 3).await;
    let hand = &mut hands[0];
    for held in [None, Some(1)] {
        let (header, whole) = fetch(hand, held, 3, None).await;
        let last = *header.frames().last().unwrap();
        let before = whole.len() as u64 - last.len;
        for has in [1, last.len / 2, last.len - 1, last.len] {
            let (resumed, rest) = fetch(hand, held, 3, partial(last.digest, has)).await;
            assert_eq!((resumed.frames(), resumed.offset()), (header.frames(), has));
            let (first, second) = whole.split_at(before as usize);
            assert_eq!(
                rest,
                [first, &second[has as usize..]].concat(),
                "{has} bytes of the last frame"
            );
        }
        // Of no frame, or more than there is.
        for other in [
            partial(Digest::of(b"no frame"), 1),
            partial(last.digest, last.len + 1),
            partial(last.digest, 0),
        ] {
            assert_eq!(fetch(hand, held, 3, other).await, (header.clone(), whole.clone()));
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn an_older_snapshot_continues_and_the_model_updates_after_it_follow() {
    let fed = Fed::new();
    let server = Server::start(options(&fed)).await;
    let mut hands = fed.clients(&server).await;
    close_rounds(&mut hands, 1, 2).await;
    let (snapshot, first) = fetch(&mut hands[0], None, 2, None).await;
    assert!(snapshot.is_snapshot());
    let part = snapshot.frames()[0];
    close_rounds(&mut hands, 3, 5).await;
    let (steps, after) = fetch(&mut hands[0], Some(2), 5, None).await;
    assert!(!steps.is_snapshot());
    let most = partial(part.digest, part.len - 3);
    let check = |(header, bytes): (ModelHeader, Vec<u8>)| {
        assert!(header.is_snapshot());
        assert_eq!(header.frames(), [&[part], steps.frames()].concat());
        assert_eq!(header.offset(), part.len - 3);
        assert_eq!(bytes, [&first[first.len() - 3..], &after].concat());
    };
    check(fetch(&mut hands[0], None, 5, most).await);
    // The first snapshot is of version 0.
    let (initial, _) = fetch(&mut hands[0], None, 5, None).await;
    assert_eq!(
        initial.frames().len(),
        1,
        "a client without a part gets the newest snapshot alone"
    );
    // So little that the newest snapshot is fewer bytes.
    let (header, _) = fetch(&mut hands[0], None, 5, partial(part.digest, 1)).await;
    assert_eq!((header.frames().len(), header.offset()), (1, 0));

    // The snapshot outlives the server.
    server.stop().await;
    drop(hands);
    let server = Server::start(options(&fed)).await;
    let mut hands = fed.clients(&server).await;
    check(fetch(&mut hands[0], None, 5, most).await);

    // Four newer snapshots take its place.
    for version in 6..=8 {
        close_rounds(&mut hands, version, version).await;
        fetch(&mut hands[0], None, version, None).await;
    }
    let (header, _) = fetch(&mut hands[0], None, 8, most).await;
    assert_eq!((header.frames().len(), header.offset()), (1, 0));
    server.stop().await;
}

#[tokio::test]
async fn the_first_snapshot_continues_after_newer_versions_and_a_restart() {
    let fed = Fed::new();
    let server = Server::start(options(&fed)).await;
    let mut hands = fed.clients(&server).await;
    let (first, bytes) = fetch(&mut hands[0], None, 0, None).await;
    let part = first.frames()[0];
    close_rounds(&mut hands, 1, 2).await;
    server.stop().await;
    drop(hands);
    let server = Server::start(options(&fed)).await;
    let mut hands = fed.clients(&server).await;
    let (_, after) = fetch(&mut hands[0], Some(0), 2, None).await;
    let (header, rest) = fetch(&mut hands[0], None, 2, partial(part.digest, part.len - 3)).await;
    assert_eq!((header.frames()[0], header.frames().len()), (part, 3));
    assert_eq!(rest, [&bytes[bytes.len() - 3..], &after].concat());
    server.stop().await;
}

#[tokio::test]
async fn the_bytes_of_no_other_blob_are_read() {
    let fed = Fed::new();
    let server = Server::start(options(&fed)).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[1], |state| state.round == 1 && state.selected).await;
    hands[1].try_update_model(0).await.unwrap();
    let frame = hands[1].encode(1);
    let header = hands[1].header(1, &frame);
    assert_eq!(hands[1].submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    // Another client's update is no frame of a model.
    let asked = partial(Digest::of(&frame), 1);
    let (header, bytes) = fetch(&mut hands[0], None, 0, asked).await;
    assert_eq!((header.frames().len(), header.offset()), (1, 0));
    assert_eq!(Digest::of(&bytes), header.frames()[0].digest);
    let newer = hands[0].fetch_bytes(fetch_request(None, 1, asked)).await;
    assert_eq!(newer.unwrap_err().code(), Code::FailedPrecondition);
    server.stop().await;
}
