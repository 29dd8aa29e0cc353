//! Measuring a connection: what is refused, and that every byte is booked.

use crate::support::*;
use fl_proto::wire;
use tonic::Code;

#[tokio::test]
async fn a_probe_beyond_its_limits_is_refused_and_its_bytes_are_booked() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut hand = fed.clients(&server).await.remove(0);
    let header = |bytes| {
        let tasks = vec!["toy".to_owned()];
        let header = fl_proto::ProbeHeader { tasks, bytes };
        wire::probe_request::Part::Header(header.into())
    };
    let data = |bytes: usize| wire::probe_request::Part::Data(vec![7; bytes].into());
    let mut probe = async |parts: Vec<wire::probe_request::Part>| {
        let parts = parts.into_iter().map(|part| wire::ProbeRequest { part: Some(part) });
        hand.calls.probe(tokio_stream::iter(parts.collect::<Vec<_>>())).await
    };
    let chunk = fl_proto::CHUNK;
    for (parts, named) in [
        (vec![], "header"),
        (vec![data(1)], "header"),
        (vec![header(0), header(0)], "header"),
        (vec![header(fl_proto::MAX_PROBE + 1)], "bytes"),
        (
            vec![header(0), data(chunk), data(chunk), data(chunk), data(chunk), data(1)],
            "262145 bytes are above 262144",
        ),
    ] {
        let refused = probe(parts).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{named}: {refused}");
        assert!(refused.message().contains(named), "{named}: {refused}");
    }
    let mut replies = probe(vec![header(chunk + 1), data(3)]).await.unwrap().into_inner();
    let mut received = 0;
    let mut run = None;
    while let Some(reply) = replies.message().await.unwrap() {
        match reply.part.unwrap() {
            wire::probe_reply::Part::Result(result) => run = Some(fl_proto::Probed::try_from(result).unwrap()),
            wire::probe_reply::Part::Data(data) => received += data.len(),
        }
    }
    let probed = run.unwrap();
    assert_eq!(received, chunk + 1);
    assert_eq!(probed.refusal, None);
    assert_eq!(probed.run.task.as_str(), "toy");
    // Only probes with data are bounded.
    let mut refused = None;
    for _ in 0..13 {
        match probe(vec![header(1)]).await {
            Ok(replies) => {
                let mut replies = replies.into_inner();
                while replies.message().await.unwrap().is_some() {}
            }
            Err(status) => refused = Some(status),
        }
        probe(vec![header(0)]).await.unwrap();
    }
    let refused = refused.unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("12 times"), "{refused}");
    server.stop().await;
    assert!(fed.ledger().is_balanced());
}
