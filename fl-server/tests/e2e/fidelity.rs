//! Fidelity reports of clients: the server checks them, sums them by tensor, keeps them over restarts and shows them,
//! and reports a tensor that is hardly sent.

use crate::support::*;
use fl_proto::UpdateReply;
use fl_server::Event;
use fl_server::ledger::Direction;
use tonic::Code;

async fn opened(hand: &mut TestClient, round: u64) {
    let mut watch = hand.watch().await;
    TestClient::until(&mut watch, |state| state.round == round).await;
}

#[tokio::test]
async fn figures_are_summed_by_tensor_once_and_survive_a_stop_within_a_round() {
    let fed = Fed::new();
    let run = Run::default().compression(SPARSE);
    let server = fed.start(&run).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[0], |state| state.round == 1).await;
    let frame = hands[0].encode(1);
    let header = hands[0].header(1, &frame);
    let [weight, bias] = header.fidelity[..] else {
        panic!("{:?}", header.fidelity)
    };
    assert!(weight.cosine() > 300 && weight.cosine() < 900 && weight.age() == 0);
    // Uploaded twice, as after a lost receipt.
    for _ in 0..2 {
        assert_eq!(hands[0].submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    }
    drop((watches, hands));
    server.stop().await;

    let server = fed.start(&run).await;
    let mut anna = fed.client("anna", &server).await;
    let [mut berta, mut carl] = [fed.client("berta", &server).await, fed.client("carl", &server).await];
    let _watches = [anna.watch().await, berta.watch().await, carl.watch().await];
    opened(&mut anna, 1).await;
    // A client of protocol 1.0, and one that reports the fidelity of another frame: both updates count.
    let frame = berta.encode(1);
    berta.fidelity.clear();
    assert_eq!(berta.submit_frame(1, &frame).await, UpdateReply::Accepted);
    let frame = carl.encode(1);
    carl.fidelity.pop();
    assert_eq!(carl.submit_frame(1, &frame).await, UpdateReply::Accepted);
    opened(&mut anna, 2).await;
    drop((anna, berta, carl, _watches));
    server.stop().await;

    let ledger = fed.ledger();
    let figures = &ledger.fidelity[&(1, Direction::Up)];
    let found: Vec<_> = figures
        .iter()
        .map(|f| (f.first, f.frames, f.least_cosine, f.least_kept))
        .collect();
    let expected = |at, section: fl_proto::SectionFidelity| (at, 1, section.cosine(), section.kept());
    assert_eq!(found, [expected(0, weight), expected(1, bias)]);
    let step = &ledger.fidelity[&(1, Direction::Down)];
    assert_eq!(
        step.iter().map(|f| (f.first, f.frames)).collect::<Vec<_>>(),
        [(0, 1), (1, 1)]
    );
    assert!(step[0].mean_cosine().unwrap() > 0.3);
}

#[tokio::test]
async fn figures_out_of_range_are_refused_before_the_frame_is_read() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[0], |state| state.round == 1).await;
    let frame = hands[0].encode(1);
    let header = hands[0].header(1, &frame);
    let changes: [fn(&mut fl_proto::wire::Fidelity); 3] = [
        |figures| figures.cosine[0] = 1001,
        |figures| figures.kept[1] = i32::MIN,
        |figures| figures.age.clear(),
    ];
    for change in changes {
        let mut part = fl_proto::wire::UpdateHeader::from(&header);
        change(part.fidelity.as_mut().unwrap());
        let chunk = fl_proto::wire::UpdateChunk {
            part: Some(fl_proto::wire::update_chunk::Part::Header(part)),
        };
        let refused = hands[0].submit_parts(vec![chunk]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("`fidelity`"), "{refused}");
    }
    assert_eq!(hands[0].submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    server.stop().await;
}

/// Every update has zero weights, and reports a cosine of zero for them.
#[tokio::test]
async fn a_tensor_that_is_not_sent_for_three_rounds_is_reported_in_events_and_metrics() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::rounds(4));
    let address = fed.page(&mut options);
    let mut server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    for round in 1..=3 {
        TestClient::until(&mut watches[0], |state| state.round == round).await;
        for hand in &mut hands {
            let mut delta = hand.model_delta(round);
            delta[..1000].fill(0.0);
            let frame = hand.encode_delta(round, delta);
            let lost = fl_compress::Fidelity {
                cosine: 0.02,
                kept: 0.0,
                nonzeros: 0,
                age: round as u32,
            };
            hand.fidelity[0] = (&lost).into();
            assert_eq!(hand.submit_frame(round, &frame).await, UpdateReply::Accepted);
        }
    }
    TestClient::until(&mut watches[0], |state| state.round == 4).await;
    let mut warnings = Vec::new();
    while warnings.is_empty() {
        if let Event::Warning(text) = server.events.recv().await.unwrap() {
            warnings.push(text);
        }
    }
    let metrics = crate::edge::Metrics::of(&address).await.0;
    for line in [
        "fl_tensor_starved_rounds{direction=\"up\",tensor=\"a.weight\"} 3.0",
        "fl_tensor_starved_rounds{direction=\"up\",tensor=\"b.bias\"} 0.0",
        "fl_tensor_cosine_ratio{direction=\"up\",tensor=\"a.weight\"} 0.02",
        "fl_tensor_density_ratio{direction=\"up\",tensor=\"a.weight\"} 0.0",
        "fl_tensor_residual_age{direction=\"up\",tensor=\"a.weight\"} 3.0",
        "fl_warnings_total 1.0",
        "fl_alerts_total 0.0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\nis not in\n{metrics}"
        );
    }
    let has_entropy = |tensor: &str| {
        let series = format!("fl_tensor_entropy_nats{{direction=\"up\",tensor=\"{tensor}\"}}");
        metrics.lines().any(|line| line.starts_with(&series))
    };
    assert!(has_entropy("b.bias"), "zeros have none\n{metrics}");
    assert!(!has_entropy("a.weight"), "zeros have none\n{metrics}");
    while let Ok(event) = server.events.try_recv() {
        if let Event::Warning(text) = event {
            warnings.push(text);
        }
    }
    let expected = "tensor `a.weight` of the updates: 0.00 % of its values sent in the last 3 rounds (cosine 0.02): raise \
                    `budget` in [compression.uplink], or the tensor's density or step if it has no budget";
    assert_eq!(warnings, [expected]);
    server.stop().await;
}

/// A training that does not reach the model sends zeros.
#[tokio::test]
async fn a_round_whose_updates_are_all_zero_is_a_warning_and_a_later_one_is_not() {
    let fed = Fed::new();
    let run = Run::rounds(2).evaluate();
    let mut server = fed.start(&run).await;
    let mut hands = fed.clients(&server).await;
    let mut watch = hands[0].watch().await;
    let mut others = Vec::new();
    for hand in &mut hands[1..] {
        others.push(hand.watch().await);
    }
    for round in 1..=2 {
        TestClient::until(&mut watch, |state| state.round == round).await;
        for hand in &mut hands {
            let mut delta = hand.model_delta(round);
            if round == 1 {
                delta.fill(0.0);
            }
            let frame = hand.encode_delta(round, delta);
            assert_eq!(hand.submit_frame(round, &frame).await, UpdateReply::Accepted);
        }
    }
    let (mut warnings, mut closed) = (Vec::new(), 0);
    while closed < 2 {
        match server.events.recv().await.unwrap() {
            Event::Warning(text) => warnings.push(text),
            Event::RoundClosed(_) => closed += 1,
            _ => {}
        }
    }
    let expected =
        "round 1 changes nothing: all its updates are zero; look whether the clients' training reaches the model";
    assert_eq!(warnings[0], expected);
    // Those clients evaluate nothing either.
    assert!(
        warnings[1].starts_with("no client of round 2 has evaluated version 1"),
        "{warnings:?}"
    );
    assert_eq!(warnings.len(), 2);
    server.stop().await;
}
