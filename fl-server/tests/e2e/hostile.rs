//! Input from strangers, liars and broken connections is refused with a reason, is never fatal, and never counts.

use std::sync::Arc;

use crate::support::*;
use fl_compress::{Encoder, Frame, FrameHeader, FrameKind, Layout, Spec};
use fl_proto::{Authority, Phase, Refusal, UpdateReply, wire};
use fl_server::Event;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

/// A federation in round 1 whose first client is about to upload.
async fn in_round_one(fed: &Fed) -> (Server, Vec<TestClient>, Vec<tonic::Streaming<wire::RoundState>>) {
    let server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    let watches = in_training(&mut hands).await;
    (server, hands, watches)
}

/// Waits until the server has so many bytes of an update.
async fn received(server: &mut Server, wanted: u64) {
    loop {
        let event = server.events.recv().await.expect("the server has received bytes");
        if matches!(event, Event::UpdateReceiving { bytes, .. } if bytes == wanted) {
            return;
        }
    }
}

/// An exact frame, encoded against `step`.
fn exact_frame(layout: &Layout, header: FrameHeader, values: &[f32], step: Option<&[u8]>) -> Vec<u8> {
    let step = step.map(|step| Frame::parse(step, layout).unwrap());
    let mut encoder = Encoder::new(Arc::new(layout.clone()), &Spec::exact()).unwrap();
    let pending = encoder.encode_against(step.as_ref(), &mut values.to_vec(), header);
    pending.unwrap().frame
}

/// The header of an update's frame.
fn of_round(round: u64) -> FrameHeader {
    let kind = FrameKind::Update;
    FrameHeader { kind, round, seed: 0 }
}

fn why(reply: UpdateReply) -> Refusal {
    match reply {
        UpdateReply::Refused { why, message } => {
            assert!(!message.is_empty());
            why
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn strangers_do_not_get_in() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let now = OffsetDateTime::now_utc();
    let name = "anna".parse().unwrap();

    let (other, _) = Authority::create("other", now, Duration::days(10)).unwrap();
    let foreign = other.issue_client(&name, now, Duration::days(1)).unwrap();
    let expired = fed
        .authority
        .issue_client(&name, now - Duration::days(30), Duration::days(1))
        .unwrap();
    let (_, root) = Authority::create("other", now, Duration::days(10)).unwrap();
    for (own, authority) in [
        (&foreign, &fed.root.certificate),
        (&expired, &fed.root.certificate),
        // The certificate of the server is not a client certificate.
        (&fed.server, &fed.root.certificate),
        // A client that trusts another authority refuses this server.
        (&fed.issue("anna"), &root.certificate),
    ] {
        let refused = match TestClient::dial(&server.address, authority, own).await {
            Err(_) => true,
            Ok(mut hand) => hand.join(None).await.is_err(),
        };
        assert!(refused);
    }
    // No certificate.
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(fed.root.certificate.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let io = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut io = connector.connect("fl-server".try_into().unwrap(), io).await.unwrap();
    let refused = io.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(refused.to_string().contains("CertificateRequired"), "{refused}");

    // Legitimate clients are still served.
    fed.client("anna", &server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_is_revoked_while_its_update_arrives_is_not_counted() {
    let fed = Fed::new();
    let (mut server, mut hands, _watches) = in_round_one(&fed).await;
    let mut anna = hands.remove(0);
    let frame = anna.encode(1);
    let header = anna.header(1, &frame);
    let (parts, stream) = upload(&header, &frame[..100]).await;
    let mut calls = anna.calls.clone();
    let call = tokio::spawn(async move { calls.submit(stream).await });
    received(&mut server, 100).await;
    let revoked = fed.dir.path().join("revoked");
    std::fs::write(&revoked, "anna\n").unwrap();
    parts.send(data_chunk(&frame[100..])).await.unwrap();
    drop(parts);
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::PermissionDenied);
    std::fs::remove_file(&revoked).unwrap();
    assert_eq!(anna.offer(&header).await, UpdateReply::Wanted { offset: 0 });
    server.stop().await;
}

#[tokio::test]
async fn a_lost_certificate_is_revoked_by_its_fingerprint_and_the_client_goes_on_with_another() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let (lost, new) = (fed.issue("anna"), fed.issue("anna"));
    let fingerprint = fl_proto::Fingerprint::of_pem(&lost.certificate).unwrap();
    let dial = |own| TestClient::dial(&server.address, &fed.root.certificate, own);
    let (mut thief, mut anna) = (dial(&lost).await.unwrap(), dial(&new).await.unwrap());
    thief.join(None).await.unwrap();
    std::fs::write(fed.dir.path().join("revoked"), format!("{fingerprint}\n")).unwrap();
    assert_eq!(thief.join(None).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(anna.join(None).await.unwrap().client.as_str(), "anna");
    server.stop().await;
}

#[tokio::test]
async fn a_revoked_client_is_denied_at_once() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut anna = fed.client("anna", &server).await;
    std::fs::write(fed.dir.path().join("revoked"), "anna\n").unwrap();
    assert_eq!(anna.join(None).await.unwrap_err().code(), Code::PermissionDenied);
    let header = anna.header(1, b"frame");
    assert_eq!(
        anna.submit(&header, b"frame").await.unwrap_err().code(),
        Code::PermissionDenied
    );
    fed.client("berta", &server).await;
    server.stop().await;
}

#[tokio::test]
async fn random_bytes_on_the_port_disturb_nobody_and_are_booked() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut state = 1u32;
    for len in [1, 100, 5_000] {
        let mut io = tokio::net::TcpStream::connect(&server.address).await.unwrap();
        let bytes: Vec<u8> = (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        let _ = io.write_all(&bytes).await;
        let _ = io.shutdown().await;
        let mut rest = Vec::new();
        let _ = io.read_to_end(&mut rest).await;
    }
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    drop(hands);
    assert_eq!(server.end().await.version, 2);
}

#[tokio::test]
async fn an_oversized_message_or_frame_is_refused_before_it_is_read() {
    let fed = Fed::new();
    let (server, mut hands, _watches) = in_round_one(&fed).await;
    let anna = &mut hands[0];
    let huge = wire::JoinRequest {
        protocol_major: 1,
        tasks: vec!["x".repeat(600_000)],
        ..Default::default()
    };
    assert_eq!(anna.calls.join(huge).await.unwrap_err().code(), Code::OutOfRange);

    let mut header = anna.header(1, b"frame");
    header.len = u64::MAX / 2;
    assert_eq!(why(anna.submit(&header, b"frame").await.unwrap()), Refusal::TooLarge);
    assert_eq!(why(anna.offer(&header).await), Refusal::TooLarge);

    let frame = anna.encode(1);
    let header = anna.header(1, &frame);
    let longer = [&frame[..], b"more"].concat();
    assert_eq!(
        anna.submit(&header, &longer).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    server.stop().await;
}

#[tokio::test]
async fn broken_frames_are_refused_and_the_good_one_still_counts() {
    let fed = Fed::with_layout(Layout::new([("w", vec![5])]).unwrap());
    let (server, mut hands, _watches) = in_round_one(&fed).await;
    let anna = &mut hands[0];
    let frame = anna.encode(1);

    for len in 1..frame.len() {
        assert_eq!(
            why(anna.submit_frame(1, &frame[..len]).await),
            Refusal::Invalid,
            "cut at {len}"
        );
    }
    for bit in 0..8 * frame.len() {
        let mut broken = frame.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(why(anna.submit_frame(1, &broken).await), Refusal::Invalid, "bit {bit}");
    }
    // A wrong digest.
    let header = anna.header(1, b"something else");
    let lying = fl_proto::UpdateHeader {
        len: frame.len() as u64,
        ..header
    };
    assert_eq!(why(anna.submit(&lying, &frame).await.unwrap()), Refusal::Invalid);
    // A frame of another layout, and of another round.
    for (shape, round) in [(vec![6], 1), (vec![5], 2)] {
        let layout = Layout::new([("w", shape)]).unwrap();
        let other = exact_frame(&layout, of_round(round), &vec![0.5; layout.len()], None);
        assert_eq!(why(anna.submit_frame(1, &other).await), Refusal::Invalid);
    }
    // A snapshot instead of an update.
    let layout = Layout::new([("w", vec![5])]).unwrap();
    let snapshot = fl_compress::snapshot(&layout, &[0.5; 5], 1).unwrap();
    assert_eq!(why(anna.submit_frame(1, &snapshot).await), Refusal::Invalid);
    // NaN and infinity, with a valid checksum.
    for bad in [f32::NAN, f32::INFINITY] {
        let marked = with_value(&frame, &anna.model_delta(1), bad);
        assert_eq!(why(anna.submit_frame(1, &marked).await), Refusal::Invalid, "{bad}");
    }

    let header = anna.header(1, &frame);
    assert_eq!(anna.submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    assert_eq!(
        anna.submit(&header, &frame).await.unwrap(),
        UpdateReply::Accepted,
        "sent twice"
    );
    let other = anna.encode_salted(1, 99);
    assert_eq!(why(anna.submit_frame(1, &other).await), Refusal::AlreadyAccepted);
    assert_eq!(why(anna.submit_frame(7, &other).await), Refusal::NotThisRound);
    let outcome = server.stop().await;
    assert_eq!(outcome.version, 0);
}

#[tokio::test]
async fn updates_that_could_add_up_beyond_f32_are_refused_and_the_largest_accepted_ones_close() {
    let fed = Fed::with_layout(Layout::new([("w", vec![5])]).unwrap());
    let (server, mut hands, mut watches) = in_round_one(&fed).await;
    let bound = fed.plan(&Run::default()).largest_value();
    assert_eq!(bound, f32::MAX / 8.0, "a quarter of the range for two rounds");
    let frame = |round, value| exact_frame(&fed.layout, of_round(round), &[0.0, 0.1, value, 0.0, 0.0], None);
    for value in [f32::MAX, -bound.next_up()] {
        let frame = frame(1, value);
        let UpdateReply::Refused { why, message } = hands[0].submit_frame(1, &frame).await else {
            panic!("{value:e} is not refused")
        };
        assert!(why == Refusal::Invalid && message.contains("magnitude"), "{message}");
    }
    for round in 1..=2 {
        if round > 1 {
            TestClient::until_round(&mut watches[0], round).await;
        }
        let frame = frame(round, bound);
        for hand in &mut hands {
            assert_eq!(hand.submit_frame(round, &frame).await, UpdateReply::Accepted);
        }
    }
    TestClient::until(&mut watches[0], |state| state.phase == Phase::Done).await;
    hands[0].try_update_model(2).await.unwrap();
    assert!(hands[0].model[2] > 1.9 * bound && hands[0].model[2].is_finite());
    drop((hands, watches));
    assert_eq!(server.end().await.version, 2);
}

/// Replaces the first value of an exact frame by `bad`, and fixes the checksum.
fn with_value(frame: &[u8], delta: &[f32], bad: f32) -> Vec<u8> {
    let first = delta[0].to_le_bytes();
    let at = frame.windows(4).position(|bytes| bytes == first).unwrap();
    let mut out = frame.to_vec();
    out[at..at + 4].copy_from_slice(&bad.to_le_bytes());
    let body = out.len() - 4;
    let crc = crc32c::crc32c(&out[..body]);
    out[body..].copy_from_slice(&crc.to_le_bytes());
    out
}

#[tokio::test]
async fn a_client_outside_the_cohort_is_not_counted() {
    let fed = Fed::new();
    let (server, _hands, _watches) = in_round_one(&fed).await;
    let mut dora = fed.client("dora", &server).await;
    assert_eq!(why(dora.send(1).await), Refusal::NotSelected);
    server.stop().await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_resumed_where_it_ended() {
    // Large enough for several chunks.
    let fed = Fed::with_layout(Layout::new([("w", vec![300, 600])]).unwrap());
    let (server, mut hands, _watches) = in_round_one(&fed).await;
    let anna = &mut hands[0];
    let frame = anna.encode(1);
    let header = anna.header(1, &frame);
    assert!(frame.len() > 2 * fl_proto::CHUNK);
    assert_eq!(anna.offer(&header).await, UpdateReply::Wanted { offset: 0 });
    let half = vec![header_chunk(&header), data_chunk(&frame[..fl_proto::CHUNK])];
    let offset = fl_proto::CHUNK as u64;
    assert_eq!(anna.submit_parts(half).await.unwrap(), UpdateReply::Wanted { offset });
    assert_eq!(anna.offer(&header).await, UpdateReply::Wanted { offset });
    // The server corrects a wrong offset.
    assert_eq!(
        anna.submit(&header, &frame).await.unwrap(),
        UpdateReply::Wanted { offset }
    );
    // The upload resumes over another connection after a restart of the server.
    server.stop().await;
    let server = fed.start(&Run::default()).await;
    let mut anna = fed.client("anna", &server).await;
    let joined = anna.join(Some(header.id.clone())).await.unwrap();
    assert_eq!(joined.pending, Some(UpdateReply::Wanted { offset }));
    let rest = fl_proto::UpdateHeader {
        offset,
        ..header.clone()
    };
    assert_eq!(
        anna.submit(&rest, &frame[fl_proto::CHUNK..]).await.unwrap(),
        UpdateReply::Accepted
    );
    assert_eq!(anna.offer(&header).await, UpdateReply::Accepted);
    server.stop().await;
}

/// Names of the files in a folder of the data, with its subfolders.
fn files(fed: &Fed, folder: &str) -> Vec<String> {
    let mut folders = vec![fed.data().join(folder)];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                names.push(entry.file_name().into_string().unwrap());
            }
        }
    }
    names
}

#[tokio::test]
async fn an_update_that_ends_after_its_round_is_refused_and_leaves_no_file() {
    let fed = Fed::new();
    let run = Run::default().clients(2);
    // The cohort has one client more than needed; the round closes at its deadline.
    let text = fed.toml(&run).replace("target = 2", "target = 2\nsize = 3");
    let text = text.replace("5min", "2s");
    let mut options = fed.options(&run);
    options.plan = fl_server::RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    let mut server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = in_training(&mut hands).await;
    let mut carl = hands.pop().unwrap();
    let frame = carl.encode(1);
    let header = carl.header(1, &frame);
    let (parts, stream) = upload(&header, &frame[..100]).await;
    let call = tokio::spawn(async move {
        let reply = carl.calls.submit(stream);
        UpdateReply::try_from(reply.await.unwrap().into_inner()).unwrap()
    });
    received(&mut server, 100).await;
    for hand in &mut hands {
        assert_eq!(hand.send(1).await, UpdateReply::Accepted);
    }
    TestClient::until(&mut watches[0], |state| state.version == 1).await;
    parts.send(data_chunk(&frame[100..])).await.unwrap();
    drop(parts);
    assert_eq!(why(call.await.unwrap()), Refusal::NotThisRound);
    let blobs = files(&fed, "blobs");
    assert!(!blobs.contains(&header.id.digest.to_string()), "{blobs:?}");
    assert_eq!(files(&fed, "side"), Vec::<String>::new());
    assert_eq!(files(&fed, "partial"), Vec::<String>::new());
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_dies_while_sending_keeps_what_arrived() {
    let fed = Fed::with_layout(Layout::new([("w", vec![300, 600])]).unwrap());
    let (mut server, mut hands, _watches) = in_round_one(&fed).await;
    let mut anna = hands.remove(0);
    let frame = anna.encode(1);
    let header = anna.header(1, &frame);
    let (parts, stream) = upload(&header, &frame[..1000]).await;
    let call = tokio::spawn(async move { anna.calls.submit(stream).await.is_ok() });
    received(&mut server, 1000).await;
    call.abort();
    let _ = call.await;
    drop(parts);
    let mut anna = fed.client("anna", &server).await;
    assert_eq!(anna.offer(&header).await, UpdateReply::Wanted { offset: 1000 });
    let rest = fl_proto::UpdateHeader { offset: 1000, ..header };
    assert_eq!(anna.submit(&rest, &frame[1000..]).await.unwrap(), UpdateReply::Accepted);
    server.stop().await;
}

#[tokio::test]
async fn messages_that_break_a_rule_name_the_field() {
    let fed = Fed::new();
    let (server, mut hands, _watches) = in_round_one(&fed).await;
    let anna = &mut hands[0];
    for (protocol_major, code, named) in [
        (9, Code::InvalidArgument, "protocol_major"),
        (1, Code::FailedPrecondition, "`toy`"),
    ] {
        let request = wire::JoinRequest {
            protocol_major,
            ..Default::default()
        };
        let status = anna.calls.join(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{named}");
        assert_contains(status.message(), named);
    }
    let request = wire::WatchRequest {
        run: "other".into(),
        ..wire::WatchRequest::default()
    };
    let status = anna.calls.watch(tokio_stream::once(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let status = anna.submit_parts(vec![data_chunk(b"no header")]).await.unwrap_err();
    assert!(status.message().contains("header"));
    let status = anna.submit_parts(vec![]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let report = wire::EvaluationReport {
        run: "test".into(),
        examples: 1,
        correct: Some(2.0),
        ..Default::default()
    };
    assert_contains(anna.calls.evaluate(report).await.unwrap_err().message(), "correct");
    server.stop().await;
}

#[tokio::test]
async fn a_frame_may_name_the_step_of_the_version_trained_from_and_no_other() {
    let exact = "[compression.uplink]\nmemory = \"cafe\"\ndefault = {}\n[compression.downlink]\ndefault = {}\n";
    for (compression, cafe) in [(exact, true), (EXACT, false)] {
        let fed = Fed::with_layout(Layout::new([("w", vec![5])]).unwrap());
        let run = Run::rounds(3).clients(1).compression(compression);
        let bound = fed.plan(&run).largest_value();
        let server = fed.start(&run).await;
        let mut anna = fed.client("anna", &server).await;
        let mut watch = anna.watch().await;
        let header = FrameHeader {
            kind: FrameKind::ModelUpdate,
            ..of_round(1)
        };
        let made_up = exact_frame(&fed.layout, header, &[1.0; 5], None);
        let update =
            |round, value: f32, step: Option<&[u8]>| exact_frame(&fed.layout, of_round(round), &[value; 5], step);
        let mut last: Option<Vec<u8>> = None;
        for round in 1..=3u64 {
            let state = TestClient::until_round(&mut watch, round).await;
            let before = last.take();
            if round > 1 {
                let (_, mut frames) = anna.fetch(Some(round - 2), round - 1).await.unwrap();
                last = frames.pop();
            }
            let mut refused = vec![(
                &made_up,
                if cafe && round > 1 {
                    "but the model update of version"
                } else {
                    "of this run has none"
                },
            )];
            refused.extend(before.as_ref().map(|step| (step, "encoded against")));
            if !cafe {
                refused.extend(last.as_ref().map(|step| (step, "of this run has none")));
            }
            for (step, expected) in refused {
                let frame = update(round, 0.5, Some(step.as_slice()));
                let UpdateReply::Refused { why, message } = anna.submit_frame(round, &frame).await else {
                    panic!("round {round}: not refused")
                };
                assert!(why == Refusal::Invalid && message.contains(expected), "{message}");
            }
            let value = 0.75 * bound;
            let step = last.as_deref().filter(|_| cafe);
            if step.is_some() {
                // The update is the sum with its predictor, which is too large.
                let frame = update(round, 2.0 * value, step);
                let UpdateReply::Refused { message, .. } = anna.submit_frame(round, &frame).await else {
                    panic!("round {round}: not refused")
                };
                assert_contains(&message, "and its predictor one of");
            }
            let frame = update(round, value, step);
            assert_eq!(anna.submit_frame(round, &frame).await, UpdateReply::Accepted);
            assert_eq!(state.version, round - 1);
        }
        TestClient::until(&mut watch, |state| state.phase == Phase::Done).await;
        drop((anna, watch));
        assert_eq!(server.end().await.version, 3);
    }
}

/// A kill in the middle of a write leaves the beginning of a pack's last entry, whose bytes a client chose.
#[tokio::test]
async fn after_a_torn_write_the_bytes_of_an_update_name_no_other_blob() {
    let fed = Fed::with_layout(Layout::new([("w", vec![1000])]).unwrap());
    let run = Run::rounds(4)
        .clients(1)
        .compression("[compression.uplink]\nmemory = \"cafe\"\ndefault = {}\n[compression.downlink]\ndefault = {}\n");
    let server = fed.start(&run).await;
    let mut anna = fed.client("anna", &server).await;
    let mut watch = anna.watch().await;
    let mut evil = Vec::new();
    let mut first = None;
    for round in 1..=3u64 {
        TestClient::until_round(&mut watch, round).await;
        let step = match round {
            1 => None,
            _ => anna.fetch(Some(round - 2), round - 1).await.unwrap().1.pop(),
        };
        let values = match round {
            3 => with_entry(&first.unwrap()),
            _ => (0..1000).map(|at| (at as f32 + round as f32).sin()).collect(),
        };
        first = first.or(step.as_ref().map(|step| fl_compress::Digest::of(step)));
        let frame = exact_frame(
            &fed.layout,
            FrameHeader {
                seed: round,
                ..of_round(round)
            },
            &values,
            step.as_deref().filter(|_| round == 2),
        );
        assert_eq!(anna.submit_frame(round, &frame).await, UpdateReply::Accepted);
        evil = frame;
    }
    TestClient::until(&mut watch, |state| state.version == 3).await;
    server.stop().await;
    let packs = fed.data().join("packs/test");
    let newest = std::fs::read_dir(packs)
        .unwrap()
        .map(|pack| pack.unwrap().path())
        .max()
        .unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes.extend(entry(&fl_compress::Digest([9; 32]), evil.len()));
    bytes.extend(&evil[..evil.len() - 100]);
    std::fs::write(&newest, bytes).unwrap();
    let server = fed.start(&run).await;
    server.stop().await;
}

/// The header of an entry of a pack.
fn entry(digest: &fl_compress::Digest, len: usize) -> Vec<u8> {
    let mut bytes = [b"FLPK".as_slice(), &(len as u32).to_le_bytes(), &digest.0].concat();
    fl_compress::wire::seal(0, &mut bytes);
    bytes
}

/// Finite values among whose bytes is the header of an entry that names a blob.
fn with_entry(digest: &fl_compress::Digest) -> Vec<f32> {
    let shifted = (0..4).flat_map(|shift| (1..200).map(move |len| (shift, len)));
    let values = |(shift, len): (usize, usize)| {
        let mut bytes = vec![0; shift];
        bytes.extend(entry(digest, len));
        bytes.resize(4000, 0);
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|value| f32::from_le_bytes(*value))
            .collect::<Vec<_>>()
    };
    let fits = |values: &Vec<f32>| values.iter().all(|value| value.abs() < 1e36);
    shifted.map(values).find(fits).unwrap()
}

/// One client on eight streams at once, and two clients with the same bytes.
#[tokio::test]
async fn the_same_bytes_sent_at_once_count_once_for_each_client() {
    let fed = Fed::new();
    let (server, mut hands, mut watches) = in_round_one(&fed).await;
    let frame = hands[0].encode(1);
    for hand in &mut hands[..2] {
        let header = hand.header(1, &frame);
        let calls: Vec<_> = (0..8)
            .map(|_| {
                let (mut calls, header, frame) = (hand.calls.clone(), header.clone(), frame.clone());
                tokio::spawn(async move {
                    let parts = vec![
                        header_chunk(&header),
                        data_chunk(&frame[..100]),
                        data_chunk(&frame[100..]),
                    ];
                    calls.submit(tokio_stream::iter(parts)).await
                })
            })
            .collect();
        let mut accepted = 0;
        for call in calls {
            match call.await.unwrap() {
                Ok(reply) => {
                    accepted += usize::from(UpdateReply::try_from(reply.into_inner()).unwrap() == UpdateReply::Accepted)
                }
                Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
            }
        }
        assert!(accepted > 0);
        assert_eq!(hand.offer(&header).await, UpdateReply::Accepted);
    }
    assert_eq!(hands[2].send(1).await, UpdateReply::Accepted);
    TestClient::until(&mut watches[0], |state| state.version == 1).await;
    server.stop().await;
    let server = fed.start(&Run::default()).await;
    server.stop().await;
}
