//! A round is one trace: checks the spans that server and clients export to an OpenTelemetry collector, and the
//! programs without a collector.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::fixtures::COMPRESSED;
use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, fails, wait_for};

const ROUNDS: usize = 3;
const SERVER: usize = 0;
const CLIENTS: [&str; 2] = ["anna", "berta"];

#[test]
fn a_round_is_one_trace_of_server_and_clients() {
    let collector = Collector::start();
    let fed = federation(&collector.address, &collector.address);
    run(&fed, false);
    let traces = collector.traces();
    assert_eq!(traces.len(), ROUNDS);
    let rounds: BTreeSet<i64> = traces.values().map(|trace| trace.root().count("fl.round")).collect();
    assert_eq!(rounds, BTreeSet::from([1, 2, 3]));
    for trace in traces.values() {
        let root = trace.root();
        assert_eq!((root.service.as_str(), root.name.as_str()), ("fl-server", "round"));
        assert_eq!((root.text("fl.run"), root.count("fl.attempt")), ("traced", 1));
        assert_eq!((root.count("fl.cohort"), root.count("fl.updates")), (2, 2));
        let [aggregate] = trace.of("fl-server", "aggregate")[..] else {
            panic!("{trace:?}")
        };
        assert!(root.start <= aggregate.start && aggregate.start <= aggregate.end && aggregate.end == root.end);
        let mut sent = 0;
        for client in CLIENTS {
            let one = |service: &str, name: &str| -> &Span {
                let of: Vec<_> = trace.of(service, name);
                let of: Vec<_> = of.into_iter().filter(|span| span.text("fl.client") == client).collect();
                assert_eq!(of.len(), 1, "{name} of {client}: {of:?}");
                of[0]
            };
            let (train, encode) = (one("fl-client", "train"), one("fl-client", "encode"));
            let (send, upload) = (one("fl-client", "send"), one("fl-server", "upload"));
            assert!([train, encode, send].iter().all(|span| span.instance == client));
            assert!(root.start <= train.start && train.start < train.end);
            assert!(train.end <= encode.start && encode.start < encode.end && encode.end <= send.start);
            // On one machine with one clock, the server receives while the client sends.
            assert!(send.start <= upload.start && upload.start < upload.end && upload.end <= send.end);
            assert!(upload.start <= root.end);
            for of in [send, upload] {
                assert_eq!((of.text("fl.verdict"), of.failed), ("accepted", false));
                assert_eq!(of.count("fl.bytes"), encode.count("fl.bytes"));
            }
            assert_eq!(upload.count("fl.offset"), 0);
            sent += upload.count("fl.bytes");
        }
        assert!(root.count("fl.bytes_up") > sent);
        // The initial weights derive from the seed of the run.
        let (fetched, given) = (trace.of("fl-client", "fetch"), trace.of("fl-server", "download"));
        assert_eq!(fetched.is_empty(), root.count("fl.round") == 1, "{fetched:?}");
        assert_eq!(given.len() >= 2, root.count("fl.round") > 1, "{given:?}");
    }
}

#[test]
fn a_server_started_anew_goes_on_with_the_same_traces() {
    let collector = Collector::start();
    let fed = federation(&collector.address, &collector.address);
    run(&fed, true);
    let traces = collector.traces();
    assert_eq!(traces.len(), ROUNDS);
    let accepted = |trace: &Trace| {
        let uploads = trace.of("fl-server", "upload");
        uploads.iter().filter(|span| !span.failed).count()
    };
    // The server started twice: each root span occurs once and includes the spans from before the restart.
    assert!(
        traces
            .values()
            .all(|trace| trace.root().name == "round" && accepted(trace) >= 2)
    );
}

#[test]
fn a_collector_that_is_not_there_or_never_answers_changes_nothing() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = (format!("http://{}", silent.local_addr().unwrap()), silent);
    // A port without a listener.
    let absent = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let fed = federation(&format!("http://{absent}"), &silent.0);
    let said = run(&fed, false);
    let warned = said
        .iter()
        .filter(|line| line.contains("does not accept traces"))
        .count();
    assert_eq!(warned, 1, "{said:?}");
    assert!(said.iter().any(|line| line.contains("traces have gaps")), "{said:?}");
    let report = fed.report();
    assert_eq!((report.run.state.as_str(), report.balanced), ("done", true));
}

#[test]
fn an_address_that_cannot_be_one_is_named_with_its_key() {
    let fed = federation("https://127.0.0.1:4317", "localhost:4317");
    let server = fed.sim(&["server", "check", "fed/server.toml"]);
    fails(
        server,
        2,
        &["`otlp` is \"https://127.0.0.1:4317\"", "http://127.0.0.1:4317"],
    );
    let client = fed.sim(&["client", "check", "anna/client.toml"]);
    fails(client, 2, &["`otlp` is \"localhost:4317\"", "http://127.0.0.1:4317"]);
}

/// A federation of two clients with a run of three rounds.
fn federation(server: &str, clients: &str) -> Fed {
    let fed = Fed::found();
    for (n, name) in CLIENTS.iter().enumerate() {
        fed.issue(
            name,
            &format!(
                "[tasks.digits]\nlearner = \"mlp\"\ndata = {{ builtin = {{ client = {n}, train = 100, test = 20 }} }}"
            ),
        );
        let path = fed.path(name).join("client.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("otlp = \"{clients}\"\n{text}")).unwrap();
    }
    fed.plan(
        &format!(
            "name = \"traced\"\ntask = \"digits\"\nrounds = {ROUNDS}\nseed = 1\n[cohort]\nmin = 2\ntarget = 2\n\
             [train]\nepochs = 1\nbatch_size = 20\nlearning_rate = 0.1\n{COMPRESSED}"
        ),
        "mlp",
        1,
    );
    let path = fed.path("fed/server.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\notlp = \"{server}\"\n")).unwrap();
    fed
}

/// Runs the federation to its end; all processes must succeed. Returns the output of the server.
fn run(fed: &Fed, anew: bool) -> Vec<String> {
    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `traced` on");
    let start = |(n, name): (usize, &&str)| Process::start(fed.client(name), n + 1, 1, &sender);
    let mut clients: Vec<Process> = CLIENTS.iter().enumerate().map(start).collect();
    if anew {
        wait_for(&lines, SERVER, "round    1");
        server.terminate();
        assert!(server.end().success());
        server = Process::start(fed.serve(&["--exit-when-done"]), SERVER, 2, &sender);
    }
    assert!(clients.iter_mut().all(|client| client.end().success()) && server.end().success());
    drop(sender);
    let said = lines.into_iter().filter(|line| line.who == SERVER);
    said.filter_map(|line| line.text).collect()
}

/// An OpenTelemetry collector that stores the spans.
struct Collector {
    address: String,
    received: Receiver<ExportTraceServiceRequest>,
    _runtime: Runtime,
}

struct Keep(Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Keep {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn start() -> Self {
        let (keep, received) = channel();
        let runtime = Runtime::new().unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0)))
            .unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let service = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Keep(keep)));
        runtime.spawn(service.serve_with_incoming(TcpListenerStream::new(listener)));
        Self {
            address,
            received,
            _runtime: runtime,
        }
    }

    /// All received spans by trace, after every sender has ended. Each trace must have one root.
    fn traces(&self) -> BTreeMap<Vec<u8>, Trace> {
        let mut traces: BTreeMap<Vec<u8>, Trace> = BTreeMap::new();
        for resource in self.received.try_iter().flat_map(|request| request.resource_spans) {
            let who = attributes(&resource.resource.unwrap().attributes);
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
                traces.entry(span.trace_id.clone()).or_default().0.push(Span {
                    service: text(&who, "service.name").to_owned(),
                    instance: who
                        .get("service.instance.id")
                        .map(|_| text(&who, "service.instance.id").to_owned())
                        .unwrap_or_default(),
                    id: span.span_id,
                    parent: span.parent_span_id,
                    name: span.name,
                    start: span.start_time_unix_nano,
                    end: span.end_time_unix_nano,
                    failed: span.status.is_some_and(|status| status.code() == StatusCode::Error),
                    known: attributes(&span.attributes),
                });
            }
        }
        for trace in traces.values() {
            let root = trace.root();
            let ids: BTreeSet<_> = trace.0.iter().map(|span| &span.id).collect();
            assert_eq!(ids.len(), trace.0.len(), "{trace:?}");
            for span in &trace.0 {
                assert!(span.id == root.id || span.parent == root.id, "{span:?}");
                assert_eq!(span.count("fl.round"), root.count("fl.round"));
            }
        }
        traces
    }
}

#[derive(Debug, Default)]
struct Trace(Vec<Span>);

impl Trace {
    fn root(&self) -> &Span {
        let roots: Vec<_> = self.0.iter().filter(|span| span.parent.is_empty()).collect();
        assert_eq!(roots.len(), 1, "{self:?}");
        roots[0]
    }

    fn of(&self, service: &str, name: &str) -> Vec<&Span> {
        let of = self
            .0
            .iter()
            .filter(|span| span.service == service && span.name == name);
        of.collect()
    }
}

#[derive(Debug)]
struct Span {
    service: String,
    instance: String,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    start: u64,
    end: u64,
    failed: bool,
    known: BTreeMap<String, Value>,
}

impl Span {
    fn text(&self, key: &str) -> &str {
        text(&self.known, key)
    }

    fn count(&self, key: &str) -> i64 {
        match self.known.get(key) {
            Some(Value::IntValue(count)) => *count,
            other => panic!("`{key}` is {other:?} in {self:?}"),
        }
    }
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, Value> {
    let value = |pair: &KeyValue| pair.value.clone().unwrap().value.unwrap();
    pairs.iter().map(|pair| (pair.key.clone(), value(pair))).collect()
}

fn text<'a>(known: &'a BTreeMap<String, Value>, key: &str) -> &'a str {
    match known.get(key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("`{key}` is {other:?} in {known:?}"),
    }
}
