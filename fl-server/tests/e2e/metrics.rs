//! Metrics of learners, and evaluations without right answers: refused by name if they cannot be true, averaged by name under the
//! limits of one client, and the same after a restart.

use std::collections::BTreeMap;

use fl_proto::wire::update_chunk::Part;
use fl_proto::{EvaluationReport, Metric, Metrics, UpdateReply, wire};
use fl_server::{Event, ModelEvaluation, RoundSummary};
use tonic::Code;

use crate::support::*;

fn metrics(pairs: &[(&str, f64, f64)]) -> Metrics {
    let mut out = Metrics::new();
    for &(name, value, weight) in pairs {
        out.add(name, Metric { value, weight }).unwrap();
    }
    out
}

/// Sends an update of round 1 with these metrics.
async fn send(hand: &mut TestClient, metrics: Metrics) {
    let frame = hand.encode(1);
    let mut header = hand.header(1, &frame);
    header.metrics = metrics.into();
    assert_eq!(hand.submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
}

fn evaluation(version: u64, loss: f64, correct: Option<f64>, metrics: Metrics) -> wire::EvaluationReport {
    EvaluationReport {
        run: "test".parse().unwrap(),
        version,
        examples: 20,
        loss,
        correct,
        language: correct.is_none(),
        metrics: metrics.into(),
    }
    .into()
}

/// Events up to the first one that `wanted` takes.
async fn first<T>(server: &mut Server, wanted: impl Fn(Event) -> Option<T>) -> T {
    loop {
        if let Some(found) = wanted(server.events.recv().await.unwrap()) {
            return found;
        }
    }
}

fn summary(event: Event) -> Option<RoundSummary> {
    match event {
        Event::RoundClosed(summary) => Some(summary),
        _ => None,
    }
}

fn evaluated(event: Event) -> Option<ModelEvaluation> {
    match event {
        Event::Evaluated(evaluated) => Some(evaluated),
        _ => None,
    }
}

#[tokio::test]
async fn metrics_that_cannot_be_true_are_refused_by_name_before_the_frame_is_read() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    let mut watches = watch_all(&mut hands).await;
    TestClient::until(&mut watches[0], |state| state.round == 1).await;
    let frame = hands[0].encode(1);
    let header = hands[0].header(1, &frame);
    let good = |name: &str| wire::Metric {
        name: name.to_owned(),
        value: 0.5,
        weight: 10.0,
    };
    let of = |name: &str, value, weight| {
        vec![wire::Metric {
            value,
            weight,
            ..good(name)
        }]
    };
    let many = (0..33).map(|at| good(&format!("m{at}"))).collect();
    let long = vec![good(&"x".repeat(100_000))];
    for (metrics, why) in [
        (of("f1", f64::NAN, 1.0), "`f1` is NaN"),
        (of("f1", f64::INFINITY, 1.0), "`f1` is inf"),
        (of("f1", 0.5, 0.0), "weight of `f1` is 0"),
        (of("f1", 0.5, -1.0), "weight of `f1` is -1"),
        (of("accuracy", 0.5, 1.0), "`accuracy` is computed by the server"),
        (of("f1\r", 0.5, 1.0), "`f1\\r` must be 1 to 64"),
        (vec![good("f1"), good("f1")], "`f1` is given twice"),
        (many, "more than 32"),
        (long, "must be 1 to 64"),
    ] {
        let mut part = wire::UpdateHeader::from(&header);
        part.metrics = metrics.clone();
        let chunk = wire::UpdateChunk {
            part: Some(Part::Header(part)),
        };
        let refused = hands[0].submit_parts(vec![chunk]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("`metrics`"), "{refused}");
        assert!(refused.message().contains(why), "{refused}");
        assert!(refused.message().len() < 300, "{refused}");
        let mut report = evaluation(0, 0.5, Some(1.0), Metrics::new());
        report.metrics = metrics;
        let refused = hands[0].calls.evaluate(report).await.unwrap_err();
        assert!(refused.message().contains(why), "{refused}");
    }
    let mut impossible = evaluation(0, 0.5, None, Metrics::new());
    impossible.correct = Some(impossible.examples as f64 + 0.5);
    let refused = hands[0].calls.evaluate(impossible).await.unwrap_err();
    assert!(refused.message().contains("`correct`"), "{refused}");
    assert_eq!(hands[0].submit(&header, &frame).await.unwrap(), UpdateReply::Accepted);
    server.stop().await;
}

#[tokio::test]
async fn metrics_are_averaged_by_name_and_no_client_decides_them_in_any_order_of_arrival() {
    let mut rounds = Vec::new();
    for order in [[0, 1, 2], [2, 0, 1]] {
        let fed = Fed::new();
        let mut options = fed.options(&Run::default().evaluate());
        let page = fed.page(&mut options);
        let mut server = Server::start(options).await;
        let mut hands = fed.clients(&server).await;
        let mut watches = watch_all(&mut hands).await;
        TestClient::until(&mut watches[0], |state| state.round == 1).await;
        // The last client lies, and reports a name that nobody else has.
        let all = [
            metrics(&[("top5", 0.5, 100.0), ("tokens", 1000.0, 7.0)]),
            metrics(&[("top5", 0.75, 100.0)]),
            metrics(&[("top5", 1e300, 1e300), ("zeta", 3.0, 1.0)]),
        ];
        for at in order {
            send(&mut hands[at], all[at].clone()).await;
        }
        let closed = first(&mut server, summary).await;
        assert_eq!(closed.metrics.keys().collect::<Vec<_>>(), ["tokens", "top5", "zeta"]);
        assert_eq!((closed.metrics["tokens"], closed.metrics["zeta"]), (1000.0, 3.0));
        // Two fifths of the weight, and forty times the median magnitude: 0.3 * 0.5 + 0.3 * 0.75 + 0.4 * 30.
        assert!((closed.metrics["top5"] - 12.375).abs() < 1e-9, "{closed:?}");

        // Version 1 is evaluated: two clients do not classify, one does.
        TestClient::until(&mut watches[0], |state| state.round == 2).await;
        let reports = [
            evaluation(1, 2.0, None, metrics(&[("bleu", 0.25, 20.0)])),
            evaluation(1, 3.0, None, metrics(&[("bleu", 0.75, 20.0)])),
            evaluation(1, 1.0, Some(15.0), Metrics::new()),
        ];
        for at in order {
            let counted = hands[at]
                .calls
                .evaluate(reports[at].clone())
                .await
                .unwrap()
                .into_inner()
                .counted;
            assert!(counted);
        }
        for hand in &mut hands {
            assert_eq!(hand.send(2).await, UpdateReply::Accepted);
        }
        let found = first(&mut server, evaluated).await;
        assert_eq!((found.version, found.examples, found.loss), (1, 60, 2.0));
        assert_eq!(found.accuracy, Some(0.75), "over those that classify");
        assert_eq!(found.perplexity, Some(2f64.exp()), "of the mean loss");
        assert_eq!(found.metrics, BTreeMap::from([("bleu".to_owned(), 0.5)]));
        // The newest closed round has no metrics, so the page has none of trainings.
        first(&mut server, summary).await;
        let text = crate::edge::Metrics::of(&page).await.0;
        for line in ["fl_model_metric{metric=\"bleu\"} 0.5", "fl_model_accuracy_ratio 0.75"] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert_contains(&text, "fl_model_perplexity 7.38");
        assert!(!text.contains("fl_last_round_training_metric{"), "{text}");
        server.stop().await;
        rounds.push((closed.metrics, found));
    }
    assert_eq!(rounds[0], rounds[1], "to the bit");
}

#[tokio::test]
async fn an_open_round_keeps_its_metrics_over_a_restart() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    let mut watch = hands[0].watch().await;
    let _others = (hands[1].watch().await, hands[2].watch().await);
    TestClient::until(&mut watch, |state| state.round == 1).await;
    send(&mut hands[0], metrics(&[("top5", 0.5, 10.0)])).await;
    server.stop().await;

    let mut server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    let mut watch = hands[1].watch().await;
    let _others = (hands[0].watch().await, hands[2].watch().await);
    TestClient::until(&mut watch, |state| state.round == 1).await;
    send(&mut hands[1], metrics(&[("top5", 1.0, 30.0)])).await;
    send(&mut hands[2], Metrics::new()).await;
    let closed = first(&mut server, summary).await;
    assert_eq!(closed.metrics, BTreeMap::from([("top5".to_owned(), 0.875)]));
    server.stop().await;
}

/// `/metrics` for a program that shows this `Accept`.
async fn metrics_as(address: &str, accept: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut io = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    io.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    io.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_program_gets_the_format_that_it_accepts_and_promtool_finds_no_fault() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    let address = fed.page(&mut options);
    let server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    assert_eq!(all_take_part(&mut hands).await.len(), 3);
    let open = metrics_as(&address, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5").await;
    assert!(open.contains("content-type: application/openmetrics-text") && open.ends_with("# EOF\n"));
    let classic = metrics_as(&address, "*/*").await;
    let (head, body) = classic.split_once("\r\n\r\n").unwrap();
    assert_contains(head, "content-type: text/plain; version=0.0.4");
    assert!(!body.contains("# EOF") && !body.contains("# UNIT"));
    for line in body.lines().filter(|line| line.starts_with("# TYPE ")) {
        assert_eq!(line.ends_with(" counter"), line.contains("_total "), "{line}");
    }
    // Where there is one; the CI has.
    let promtool = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    match promtool {
        Ok(mut child) => {
            use std::io::Write as _;
            child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
            let done = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.trim().is_empty(), "{said}");
        }
        Err(error) => eprintln!("promtool was not asked: {error}"),
    }
    server.stop().await;
}
