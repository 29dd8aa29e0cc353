//! Every text field that a client or a device may send, found in the schema: a text of 100 KB with escape sequences, line feeds and
//! marks of direction reaches no log, no status, no page and no answer as it is.

use std::collections::BTreeMap;

use fl_proto::{UpdateId, wire};
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::edge::fl_server;
use crate::settings::Served;

/// A field of a message: its type, its name and its number.
type Field = (String, String, u32);

/// The messages of the schema.
fn messages() -> BTreeMap<String, Vec<Field>> {
    let (federation, enrollment) = (
        include_str!("../../../proto/proto/fl/v1/federation.proto"),
        include_str!("../../../proto/proto/fl/v1/enrollment.proto"),
    );
    let (mut all, mut message) = (BTreeMap::<String, Vec<Field>>::new(), String::new());
    for line in federation.lines().chain(enrollment.lines()).map(str::trim) {
        if let Some(rest) = line.strip_prefix("message ") {
            message = rest.split([' ', '{']).next().unwrap().to_owned();
        }
        let words: Vec<_> = line.trim_end_matches(';').split(' ').collect();
        let words = match words.as_slice() {
            ["optional" | "repeated", rest @ ..] => rest,
            words => words,
        };
        if let [kind, name, "=", number] = words
            && let Ok(number) = number.parse()
        {
            let field = ((*kind).to_owned(), (*name).to_owned(), number);
            all.entry(message.clone()).or_default().push(field);
        }
    }
    all
}

/// The numbers that lead to each text field of a message, and their names.
fn texts(all: &BTreeMap<String, Vec<Field>>, message: &str) -> Vec<(String, Vec<u32>)> {
    let mut found = Vec::new();
    for (kind, name, number) in all.get(message).into_iter().flatten() {
        if kind == "string" {
            found.push((format!("{message}.{name}"), vec![*number]));
        }
        for (name, path) in texts(all, kind) {
            found.push((name, [vec![*number], path].concat()));
        }
    }
    found
}

/// `text` as the field at `path`. Behind a message, it takes the place of what the message has there.
fn field(path: &[u32], text: &str) -> Vec<u8> {
    let (first, rest) = path.split_first().unwrap();
    let inner = if rest.is_empty() {
        text.as_bytes().to_vec()
    } else {
        field(rest, text)
    };
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(first << 3 | 2), &mut bytes);
    prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
    bytes.extend(inner);
    bytes
}

/// A message that is sent as it is.
#[derive(Debug, Clone, Default)]
struct Raw(Vec<u8>);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl prost::bytes::BufMut) {
        buf.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: prost::encoding::WireType,
        _: &mut impl prost::bytes::Buf,
        _: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        unreachable!("it is only sent")
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {}
}

/// A message of each call that is right but for the text that is put into it.
fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let run = || "test".to_owned();
    let id = UpdateId {
        run: "test".parse().unwrap(),
        round: 1,
        attempt: 1,
        digest: fl_compress::Digest::of(b"frame"),
    };
    let header = wire::UpdateHeader {
        id: Some((&id).into()),
        len: 100,
        examples: 5,
        loss: 0.5,
        ..Default::default()
    };
    let join = wire::JoinRequest {
        protocol_major: 1,
        tasks: vec!["toy".to_owned()],
        ..Default::default()
    };
    let leave = wire::LeaveRequest {
        run: run(),
        departure: wire::Departure::Failure as i32,
        ..Default::default()
    };
    let availability = wire::Availability {
        kind: wire::AvailabilityKind::Paused as i32,
        ..Default::default()
    };
    let watch = wire::WatchRequest {
        run: run(),
        availability: Some(availability),
        ..Default::default()
    };
    let report = wire::EvaluationReport {
        run: run(),
        examples: 5,
        loss: 0.5,
        ..Default::default()
    };
    let fetch = wire::FetchRequest {
        run: run(),
        ..Default::default()
    };
    let base = wire::BaseRequest {
        run: run(),
        ..Default::default()
    };
    let chunk = wire::UpdateChunk {
        part: Some(wire::update_chunk::Part::Header(header.clone())),
    };
    let probe = wire::ProbeRequest {
        part: Some(wire::probe_request::Part::Header(wire::ProbeHeader {
            protocol_major: 1,
            ..Default::default()
        })),
    };
    vec![
        ("Join", "JoinRequest", join.encode_to_vec()),
        ("Watch", "WatchRequest", watch.encode_to_vec()),
        ("Fetch", "FetchRequest", fetch.encode_to_vec()),
        ("FetchBase", "BaseRequest", base.encode_to_vec()),
        ("Offer", "UpdateHeader", header.encode_to_vec()),
        ("Submit", "UpdateChunk", chunk.encode_to_vec()),
        ("Evaluate", "EvaluationReport", report.encode_to_vec()),
        ("Leave", "LeaveRequest", leave.encode_to_vec()),
        ("Renew", "RenewRequest", Vec::new()),
        ("Probe", "ProbeRequest", probe.encode_to_vec()),
    ]
}

async fn send(channel: &Channel, path: &str, message: Vec<u8>) -> Result<(), Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let request = Request::new(tokio_stream::once(Raw(message)));
    let codec = ProstCodec::<Raw, wire::UpdateReply>::default();
    let mut answer = grpc.streaming(request, path.parse().unwrap(), codec).await?;
    // One message at most: a watch goes on.
    answer.get_mut().message().await.map(drop)
}

/// Whether nothing in a text moves a cursor or turns an order, and no line is longer than a peer's text may be.
fn is_tame(text: &str) -> bool {
    let bad = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{2066}' | '\u{2028}');
    !text.chars().any(bad) && text.lines().all(|line| line.len() < 4096)
}

#[tokio::test]
async fn no_text_of_a_peer_is_shown_as_it_is() {
    let mut server = Served::start("127.0.0.1", "call_rate = 10000\n").await;
    let (authority, own) = server.issue("anna").await;
    let tls = fl_proto::client_tls(&authority, &own).unwrap();
    let dial = || fl_proto::Dial::new(server.address.clone(), tls.clone());
    let channel = fl_proto::dial(dial()).await.unwrap();
    let wild = format!("EVIL\u{1b}[2J\n\u{202e}\u{2066}\u{2028}\r\u{7}{}", "A".repeat(100_000));
    let all = messages();
    let mut fields = Vec::new();
    for (call, message, sample) in samples() {
        let path = format!("/fl.v1.Federation/{call}");
        for (name, to) in texts(&all, message) {
            let bytes = [sample.clone(), field(&to, &wild)].concat();
            if let Err(status) = send(&channel, &path, bytes).await {
                assert!(is_tame(status.message()), "{name}: {:.300?}", status.message());
            }
            fields.push(name);
        }
    }
    // A device without a certificate, too.
    let line = server.line("berta").await;
    let tls = fl_proto::pinned_client_tls(line.authority).unwrap();
    let channel = fl_proto::dial(fl_proto::Dial::new(line.address.clone(), tls))
        .await
        .unwrap();
    let key = fl_proto::NewKey::generate().unwrap();
    let asked = wire::EnrollRequest {
        protocol_major: 1,
        secret: line.secret.as_bytes().to_vec().into(),
        request: key.request(None).unwrap().into(),
        name: String::new(),
    };
    let short: String = wild.chars().take(3_000).collect();
    for (name, to) in texts(&all, "EnrollRequest") {
        let bytes = [asked.encode_to_vec(), field(&to, &short)].concat();
        let status = send(&channel, "/fl.v1.Enrollment/Enroll", bytes).await.unwrap_err();
        assert!(is_tame(status.message()), "{name}: {:.300?}", status.message());
        fields.push(name);
    }
    for name in [
        "JoinRequest.tasks",
        "LeaveRequest.reason",
        "Availability.reason",
        "Metric.name",
        "EnrollRequest.name",
    ] {
        assert!(fields.iter().any(|field| field == name), "{name} of {fields:?}");
    }
    let fed = server.path("").display().to_string();
    let shown = [
        fl_server(&["status", &fed]).await,
        fl_server(&["status", &fed, "--format", "json"]).await,
        fl_server(&["clients", "list", "--fed", &fed]).await,
        fl_server(&["clients", "show", "anna", "--fed", &fed]).await,
    ];
    for text in &shown {
        assert!(is_tame(text), "{text:.2000}");
    }
    assert!(shown[0].contains("EVIL"), "what the client says is shown: {}", shown[0]);
    let (_, _, page) = crate::live::get(&server.admin, "/live.json").await;
    assert!(page.len() < 64 * 1024, "{page:.2000}");
    assert!(is_tame(&page.replace(',', "\n")), "{page:.2000}");
    server.child.kill().await.unwrap();
    let mut log = String::new();
    while let Some(line) = server.log.next_line().await.unwrap() {
        log.push_str(&line);
        log.push('\n');
    }
    assert!(is_tame(&log), "{log:.2000}");
}
