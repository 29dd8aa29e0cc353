//! Whole runs over real sockets with mutual TLS.

use crate::edge::fl_server;
use crate::support::*;
use fl_compress::{Digest, Frame};
use fl_proto::{Phase, UpdateReply};
use fl_server::{Ending, Event};

fn drain(server: &mut Server) -> Vec<Event> {
    std::iter::from_fn(|| server.events.try_recv().ok()).collect()
}

#[tokio::test]
async fn three_clients_train_two_rounds_and_end_with_the_servers_model() {
    for compression in [EXACT, SPARSE, CAFE] {
        let fed = Fed::new();
        let mut server = fed.start(&Run::default().evaluate().compression(compression)).await;
        let mut hands = fed.clients(&server).await;
        let digests = all_take_part(&mut hands).await;
        drop(hands);
        let mut events = Vec::new();
        while let Some(event) = server.events.recv().await {
            events.push(event);
        }
        let outcome = server.end().await;
        assert_eq!((outcome.ending, outcome.version), (Ending::Done, 2));
        assert!(
            digests.iter().all(|digest| *digest == outcome.model),
            "{digests:?} {:?}",
            outcome.model
        );
        let closed = events
            .iter()
            .filter(|event| matches!(event, Event::RoundClosed(_)))
            .count();
        let accepted = events
            .iter()
            .filter(|event| matches!(event, Event::UpdateAccepted { .. }))
            .count();
        assert_eq!((closed, accepted), (2, 6));
        assert!(
            events
                .iter()
                .any(|event| matches!(event, Event::Evaluated(e) if e.version == 2 && e.examples == 60))
        );
        assert!(events.contains(&Event::Done));
        assert!(
            !events.iter().any(|event| matches!(event, Event::Alert(_))),
            "{events:?}"
        );
    }
}

#[tokio::test]
async fn compressed_runs_send_bits_not_floats() {
    let fed = Fed::new();
    let mut server = fed.start(&Run::default().compression(SPARSE)).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    let summary = drain(&mut server).into_iter().find_map(|event| match event {
        Event::RoundClosed(summary) => Some(summary),
        _ => None,
    });
    let summary = summary.unwrap();
    assert!(summary.bits_up > 0.0 && summary.bits_up < 4.0, "{summary:?}");
    assert!(summary.flow.update > 0 && summary.flow.socket_up > summary.flow.update);
    server.stop().await;
}

#[tokio::test]
async fn a_client_of_several_streams_is_present_once() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut anna = fed.client("anna", &server).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut watch = anna.watch().await;
        let state = TestClient::until(&mut watch, |_| true).await;
        assert_eq!(state.phase, Phase::Waiting, "one client is not three");
        streams.push(watch);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_fetch_is_the_chain_or_a_snapshot_whichever_is_fewer_bytes() {
    let fed = Fed::new();
    let server = fed.start(&Run::rounds(4).compression(SPARSE)).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    let late = &mut hands[0];
    let (header, frames) = late.fetch(Some(2), 4).await.unwrap();
    assert!(!header.is_snapshot());
    assert_eq!(frames.len(), 2);
    let (header, _) = late.fetch(None, 4).await.unwrap();
    assert!(header.is_snapshot());
    let (header, frames) = late.fetch(Some(4), 4).await.unwrap();
    assert!(!header.is_snapshot() && frames.is_empty());
    assert_eq!(
        late.fetch(None, 5).await.unwrap_err().code(),
        tonic::Code::FailedPrecondition
    );
    assert_eq!(
        late.fetch(Some(9), 3).await.unwrap_err().code(),
        tonic::Code::FailedPrecondition
    );
    server.stop().await;

    // Model updates are dense here: two of them are larger than one snapshot.
    let fed = Fed::new();
    let server = fed.start(&Run::rounds(2)).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    let (header, _) = hands[0].fetch(Some(0), 2).await.unwrap();
    assert!(header.is_snapshot());
    let (header, _) = hands[0].fetch(Some(1), 2).await.unwrap();
    assert!(!header.is_snapshot());
    server.stop().await;
}

#[tokio::test]
async fn a_graceful_stop_and_a_restart_continue_the_same_round_to_the_same_model() {
    let undisturbed = {
        let fed = Fed::new();
        let server = fed.start(&Run::default().compression(SPARSE)).await;
        let mut hands = fed.clients(&server).await;
        all_take_part(&mut hands).await;
        drop(hands);
        server.end().await.model
    };
    let fed = Fed::new();
    let run = Run::default().compression(SPARSE);
    let server = fed.start(&run).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    let state = TestClient::until(&mut watches[0], |state| state.phase == Phase::Training).await;
    assert_eq!(state.round, 1);
    let frame = hands[0].encode(1);
    let header = hands[0].header(1, &frame);
    assert_eq!(hands[0].submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    let outcome = server.stop().await;
    assert_eq!((outcome.ending, outcome.version), (Ending::Stopped, 0));
    assert_eq!(ended(&mut watches[1]).await.code(), tonic::Code::Unavailable);

    let server = fed.start(&run).await;
    let mut again = Vec::new();
    for (name, before) in NAMES.iter().zip(hands) {
        let mut hand = fed.client(name, &server).await;
        hand.encoder = before.encoder;
        again.push(hand);
    }
    // As after a lost receipt: queried or uploaded again, the update is accepted and counts once.
    assert_eq!(again[0].offer(&header).await, UpdateReply::Accepted);
    assert_eq!(again[0].submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    let joined = again[0].join(Some(header.id.clone())).await.unwrap();
    assert_eq!(joined.pending, Some(UpdateReply::Accepted));
    let digests = all_take_part(&mut again).await;
    drop(again);
    let outcome = server.end().await;
    assert_eq!((outcome.ending, outcome.model), (Ending::Done, undisturbed));
    assert!(digests.iter().all(|digest| *digest == undisturbed));
}

#[tokio::test]
async fn a_run_that_is_over_stays_over_and_is_told_so() {
    let fed = Fed::new();
    let server = fed.start(&Run::rounds(1)).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    drop(hands);
    let model = server.end().await.model;
    let mut options = fed.options(&Run::rounds(1));
    options.exit_when_done = false;
    let server = Server::start(options).await;
    let mut anna = fed.client("anna", &server).await;
    let mut watch = anna.watch().await;
    let state = TestClient::until(&mut watch, |_| true).await;
    assert_eq!((state.phase, state.version), (Phase::Done, 1));
    assert_eq!(state.model, model);
    let (next, outcome) = tokio::join!(watch.message(), server.stop());
    assert_eq!(
        next.unwrap_err().code(),
        tonic::Code::Unavailable,
        "the watch lasts until the server stops"
    );
    assert_eq!(outcome.ending, Ending::Done);
}

#[tokio::test]
async fn another_plan_under_the_same_name_is_refused_in_plain_words() {
    let fed = Fed::new();
    fed.start(&Run::default()).await.stop().await;
    let server = fed.start(&Run::rounds(9)).await;
    let error = server.result().await.unwrap_err().to_string();
    assert_contains(&error, "begun with another plan (`rounds` was 2 and is 9)");
}

/// Two clients in four rounds; one is late in round 3. Returns the model. `restart`: the server restarts in round 4
/// after the first of two updates.
async fn predicted(restart: bool) -> Digest {
    let fed = Fed::new();
    let run = Run::rounds(4).clients(2).compression(CAFE);
    let mut server = fed.start(&run).await;
    let mut hands = [fed.client("anna", &server).await, fed.client("berta", &server).await];
    let mut watches = [hands[0].watch().await, hands[1].watch().await];
    for round in 1..=4u64 {
        if round == 3 {
            // As if it had lost its state: it can only fetch the whole model.
            (hands[1].version, hands[1].step) = (None, None);
        }
        for at in 0..2 {
            if (restart, round, at) == (true, 4, 1) {
                assert_eq!(server.stop().await.version, 3);
                server = fed.start(&run).await;
                for (hand, watch) in hands.iter_mut().zip(&mut watches) {
                    let again = fed.client(&hand.name, &server).await;
                    hand.calls = again.calls;
                    *watch = hand.watch().await;
                }
            }
            let (hand, watch) = (&mut hands[at], &mut watches[at]);
            let state = TestClient::until_round(watch, round).await;
            assert_eq!(state.model, hand.try_update_model(state.version).await.unwrap());
            let frame = hand.encode(round);
            let named = Frame::parse(&frame, &fed.layout).unwrap().predictor();
            assert_eq!(
                named.is_some(),
                round > 1 && (round, at) != (3, 1),
                "{} in round {round}",
                hand.name
            );
            assert_eq!(hand.submit_frame(round, &frame).await, UpdateReply::Accepted);
        }
    }
    let done = TestClient::until(&mut watches[0], |state| state.phase == Phase::Done).await;
    for hand in &mut hands {
        assert_eq!(done.model, hand.try_update_model(4).await.unwrap());
    }
    drop((hands, watches));
    let model = server.end().await.model;
    assert_eq!(done.model, model);
    model
}

#[tokio::test]
async fn a_client_that_comes_late_predicts_nothing_until_it_follows_step_by_step() {
    predicted(false).await;
}

#[tokio::test]
async fn a_restart_in_a_predicted_round_leads_to_the_same_model() {
    assert_eq!(predicted(true).await, predicted(false).await);
}

#[tokio::test]
async fn a_run_is_rolled_back_with_the_server_stopped_and_running_and_is_verified_to_the_end() {
    for compression in [SPARSE, CAFE] {
        let fed = Fed::new();
        let run = Run::rounds(3).evaluate().compression(compression);
        let file = fed.dir.path().join("run.toml");
        std::fs::write(&file, fed.toml(&run)).unwrap();
        std::fs::write(fed.dir.path().join("server.toml"), "admin = \"off\"\n").unwrap();
        let (dir, plan) = (fed.dir.path().to_str().unwrap(), file.to_str().unwrap());

        let options = || {
            let mut options = fed.options(&run);
            options.tuning.keep_updates = true;
            options
        };
        let server = Server::start(options()).await;
        let mut hands = fed.clients(&server).await;
        all_take_part(&mut hands).await;
        drop(hands);
        assert_eq!(server.end().await.version, 3);
        let said = fl_server(&["rollback", dir, "--to", "1"]).await;
        assert_contains(&said, "rolled back to version 1, which is version 4 now");
        let model = fed.dir.path().join("model.safetensors");
        let exported = fl_server(&["export", dir, "-o", model.to_str().unwrap()]).await;
        let older = fl_server(&["export", dir, "--version", "1", "-o", model.to_str().unwrap()]).await;
        let digest = |line: &str| line.trim().rsplit(' ').next().unwrap().to_owned();
        assert_eq!(digest(&exported), digest(&older));

        let mut serving = options();
        serving.exit_when_done = false;
        serving.tuning.checkpoint_every = 1;
        let server = Server::start(serving).await;
        let mut hands = fed.clients(&server).await;
        let models = all_take_part(&mut hands).await;
        assert!(models.iter().all(|model| *model == models[0]));
        assert_eq!(
            hands[0].version,
            Some(6),
            "version 4, and the two rounds that were taken back"
        );
        let said = fl_server(&["rollback", dir, "--to", "5"]).await;
        assert_contains(&said, "rolled back to version 5, which is version 7 now");
        // Clients with a rolled-back version continue from the new one.
        let models = all_take_part(&mut hands).await;
        assert!(models.iter().all(|model| *model == models[0]));
        assert_eq!(hands[0].version, Some(8));
        drop(hands);
        let outcome = server.stop().await;
        assert_eq!((outcome.version, outcome.model), (8, models[0]));
        let verified = fl_server(&["verify", dir, "--plan", plan]).await;
        assert!(!verified.contains("not checked"), "{verified}");
        assert_contains(&verified, "round    8: link ok; model ok; aggregation ok");
        // A restart replays the rounds after the rollback.
        let again = Server::start(options()).await;
        assert_eq!(again.end().await.model, models[0]);
    }
}

#[tokio::test]
async fn a_client_is_excluded_from_the_open_round_of_a_running_server() {
    let fed = Fed::new();
    let run = Run::rounds(1);
    std::fs::write(fed.dir.path().join("server.toml"), "admin = \"off\"\n").unwrap();
    let dir = fed.dir.path().to_str().unwrap();
    let text = fed.toml(&run).replace("min = 3", "min = 2");
    let mut options = fed.options(&run);
    options.plan = fl_server::RunPlan::from_toml(&text, fed.dir.path()).unwrap();
    let server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[0], |state| state.selected).await;
    let frame = hands[0].encode(1);
    let header = hands[0].header(1, &frame);
    assert_eq!(hands[0].submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    let said = fl_server(&["exclude", dir, "anna"]).await;
    assert_contains(&said, "anna is excluded from round 1");
    TestClient::until(&mut watches[0], |state| !state.selected && state.round == 1).await;
    assert_eq!(
        hands[0].offer(&header).await,
        UpdateReply::Accepted,
        "the acknowledgement stands"
    );
    for hand in &mut hands[1..] {
        assert_eq!(hand.send(1).await, UpdateReply::Accepted);
    }
    TestClient::until(&mut watches[1], |state| state.phase == Phase::Done).await;
    drop((hands, watches));
    assert_eq!(server.end().await.version, 1);
    let report = fl_server(&["report", dir, "--format", "json"]).await;
    assert_contains(&report, "\"updates\"");
}
