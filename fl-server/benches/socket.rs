//! What each layer between a client's bytes and the server's files costs the server: the same bytes over TCP, over TLS, over
//! gRPC, and through a round of the whole server, which `fl-sim load` measures with `target/release/fl-sim`: build that first.
//!
//! In a round, every client receives a frame and sends one. The clients are a process of their own, so that the processor time
//! of this one is the server's.
//!
//! `cargo build --release -p fl-sim && cargo bench -p fl-server --bench socket [-- CLIENTS VALUES [CHUNK ..]]`; with lengths of chunks
//! in bytes, instead of all layers: gRPC with messages of each length.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fl_proto::{Authority, CHUNK, Dial, Issued, MAX_MESSAGE, Meter, wire};
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::federation_client::FederationClient;
use wire::federation_server::{Federation, FederationServer};

/// Clients and values of an fp32 model; as in docs/benchmarks.md.
const LOADS: [(usize, usize); 2] = [(10, 1_000_000), (100, 100_000)];
/// Rounds that are measured together.
const ROUNDS: usize = 11;
/// Times that each layer is measured, in turn with the others; the median counts.
const TIMES: usize = 5;
const LAYERS: [&str; 4] = ["tcp", "tls", "grpc", "server"];
/// Bytes of one read or write.
const PART: usize = 64 * 1024;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["clients", layer, address, clients, bytes, chunk, dir] => {
            let round = Round {
                clients: clients.parse().unwrap(),
                bytes: bytes.parse().unwrap(),
                chunk: chunk.parse().unwrap(),
            };
            runtime.block_on(round.clients(layer, address, Path::new(dir)));
        }
        [clients, values] => runtime.block_on(table(clients.parse().unwrap(), values.parse().unwrap())),
        [clients, values, ref lengths @ ..] if !lengths.is_empty() => {
            let lengths: Vec<usize> = lengths.iter().map(|chunk| chunk.parse().unwrap()).collect();
            runtime.block_on(chunks(clients.parse().unwrap(), values.parse().unwrap(), &lengths));
        }
        _ => LOADS
            .map(|(clients, values)| runtime.block_on(table(clients, values)))
            .into_iter()
            .collect(),
    }
}

/// Prints what a round costs the server in each layer, and as a ratio to TLS.
async fn table(clients: usize, values: usize) {
    let round = Round {
        clients,
        bytes: 4 * values,
        chunk: CHUNK,
    };
    let mut found = LAYERS.map(|layer| (layer, Vec::new()));
    for _ in 0..TIMES {
        for (layer, costs) in &mut found {
            costs.extend(match *layer {
                "server" => server(clients, values),
                layer => Some(round.serve(layer).await),
            });
        }
    }
    println!(
        "{clients} clients, {values} values in fp32: {} MB in a round",
        2 * clients * 4 * values / 1_000_000
    );
    println!("{:>8} {:>10} {:>14} {:>12}", "layer", "wall", "server CPU", "times TLS");
    let cpu = |costs: &[Cost]| median(costs.iter().map(|cost| cost.cpu));
    let tls = found
        .iter()
        .find(|(layer, _)| *layer == "tls")
        .map_or(f64::NAN, |(_, costs)| cpu(costs));
    for (layer, costs) in found {
        if costs.is_empty() {
            println!("{layer:>8}  target/release/fl-sim is missing or old");
            continue;
        }
        let wall = median(costs.iter().map(|cost| cost.wall));
        println!(
            "{layer:>8} {wall:>7.0} ms {:>11.0} ms {:>12.2}",
            cpu(&costs),
            cpu(&costs) / tls
        );
    }
}

/// Prints what a round costs the server in gRPC messages of these lengths.
async fn chunks(clients: usize, values: usize, lengths: &[usize]) {
    let mut found: Vec<(usize, Vec<Cost>)> = lengths.iter().map(|chunk| (*chunk, Vec::new())).collect();
    for _ in 0..TIMES {
        for (chunk, costs) in &mut found {
            let round = Round {
                clients,
                bytes: 4 * values,
                chunk: *chunk,
            };
            costs.push(round.serve("grpc").await);
        }
    }
    println!("{:>8} {:>10} {:>14}", "chunk", "wall", "server CPU");
    for (chunk, costs) in found {
        let [wall, cpu] = [|cost: &Cost| cost.wall, |cost: &Cost| cost.cpu].map(|of| median(costs.iter().map(of)));
        println!("{chunk:>8} {wall:>7.0} ms {cpu:>11.0} ms");
    }
}

/// Milliseconds of one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What `fl-sim load` measures; `None` if there is no such program.
fn server(clients: usize, values: usize) -> Option<Cost> {
    let program: PathBuf = std::env::current_exe().ok()?.parent()?.parent()?.join("fl-sim");
    let mut load = Command::new(program);
    load.args(["--format", "json", "load", "--codec", "dense"]);
    load.args(["--clients", &clients.to_string(), "--values", &values.to_string()]);
    let output = load.args(["--rounds", &(ROUNDS + 1).to_string()]).output().ok()?;
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(Cost {
        wall: measured["median"].as_f64()? * 1e3,
        cpu: measured["server_cpu"].as_f64()? * 1e3,
    })
}

/// Processor time of this process, in milliseconds, in steps of 10 (proc(5)).
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) * 10.0
}

/// The bytes of a round.
#[derive(Debug, Clone, Copy)]
struct Round {
    clients: usize,
    /// Of a frame.
    bytes: usize,
    /// Bytes of a message.
    chunk: usize,
}

const VALID: Duration = Duration::days(1);

impl Round {
    fn messages(self, frame: &Bytes) -> impl Iterator<Item = Bytes> + use<> {
        let chunk = |at: usize| frame.slice(at..frame.len().min(at + self.chunk));
        let parts: Vec<_> = (0..frame.len()).step_by(self.chunk).map(chunk).collect();
        parts.into_iter()
    }

    /// Serves the rounds of clients in another process.
    async fn serve(self, layer: &str) -> Cost {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let (authority, root) = Authority::create("bench", now, VALID).unwrap();
        let own = authority.issue_server(now, VALID).unwrap();
        let client = authority.issue_client(&"client".parse().unwrap(), now, VALID).unwrap();
        for (name, text) in [
            ("authority", &root.certificate),
            ("certificate", &client.certificate),
            ("key", &client.key),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let tls = fl_proto::server_tls(&root.certificate, &own).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut clients = Command::new(std::env::current_exe().unwrap());
        clients.args(["clients", layer, &listener.local_addr().unwrap().to_string()]);
        clients
            .args([self.clients, self.bytes, self.chunk].map(|number| number.to_string()))
            .arg(dir.path());
        let mut clients = clients.spawn().unwrap();
        let (begun, before) = (Instant::now(), processor());
        match layer {
            "grpc" => {
                let gone = tokio::task::spawn_blocking(move || assert!(clients.wait().unwrap().success()));
                tokio::select! {
                    () = self.serve_calls(listener, tls) => {}
                    gone = gone => gone.unwrap(),
                }
            }
            layer => {
                let mut rounds = JoinSet::new();
                for _ in 0..self.clients {
                    let (io, _) = listener.accept().await.unwrap();
                    io.set_nodelay(true).unwrap();
                    match layer {
                        "tcp" => rounds.spawn(self.frames(io)),
                        _ => rounds.spawn(self.frames(TlsAcceptor::from(Arc::clone(&tls)).accept(io).await.unwrap())),
                    };
                }
                rounds.join_all().await;
                assert!(clients.wait().unwrap().success());
            }
        }
        let rounds = ROUNDS as f64;
        Cost {
            wall: begun.elapsed().as_secs_f64() * 1e3 / rounds,
            cpu: (processor() - before) / rounds,
        }
    }

    /// The server's side of a client's rounds on a plain stream.
    async fn frames<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(self, mut io: S) {
        let frame = vec![7; self.bytes];
        for _ in 0..ROUNDS {
            for part in frame.chunks(PART) {
                io.write_all(part).await.unwrap();
            }
            io.flush().await.unwrap();
            read(&mut io, self.bytes).await;
        }
        io.shutdown().await.unwrap();
    }

    async fn serve_calls(self, listener: TcpListener, tls: Arc<rustls::ServerConfig>) {
        let (connections, incoming) = mpsc::channel(1);
        let accepting = async move {
            for _ in 0..self.clients {
                let (io, from) = listener.accept().await.unwrap();
                let accepted =
                    fl_proto::accept(io, from, Arc::default(), Arc::clone(&tls), fl_proto::CONNECT_TIMEOUT).await;
                connections.send(accepted).await.unwrap();
            }
            std::future::pending().await
        };
        let calls = Calls(self, Bytes::from(vec![7; self.bytes]));
        let calls = FederationServer::new(calls)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let serving = fl_proto::server_builder(fl_proto::MAX_STREAMS, fl_proto::DEFAULT_PING_EVERY)
            .add_service(calls)
            .serve_with_incoming(ReceiverStream::new(incoming));
        tokio::select! {
            served = serving => served.unwrap(),
            () = accepting => {}
        }
    }

    /// The clients of all rounds.
    async fn clients(self, layer: &str, address: &str, dir: &Path) {
        let file = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        let own = Issued {
            certificate: file("certificate"),
            key: file("key"),
        };
        let tls = fl_proto::client_tls(&file("authority"), &own).unwrap();
        let mut running = JoinSet::new();
        for _ in 0..self.clients {
            let (tls, address) = (Arc::clone(&tls), address.to_owned());
            match layer {
                "tcp" => running.spawn(async move { self.exchange(TcpStream::connect(address).await.unwrap()).await }),
                "tls" => running.spawn(async move {
                    let io = TcpStream::connect(address).await.unwrap();
                    io.set_nodelay(true).unwrap();
                    let name = "fl-server".try_into().unwrap();
                    self.exchange(TlsConnector::from(tls).connect(name, io).await.unwrap())
                        .await;
                }),
                _ => running.spawn(self.call(Dial {
                    address,
                    tls,
                    meter: Arc::new(Meter::default()),
                    paces: fl_proto::Paces::default(),
                    silence: Default::default(),
                    answered: Default::default(),
                })),
            };
        }
        running.join_all().await;
    }

    async fn exchange<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(self, mut io: S) {
        let frame = vec![7; self.bytes];
        for _ in 0..ROUNDS {
            read(&mut io, self.bytes).await;
            for part in frame.chunks(PART) {
                io.write_all(part).await.unwrap();
            }
            io.flush().await.unwrap();
        }
        io.shutdown().await.unwrap();
    }

    async fn call(self, dial: Dial) {
        let mut calls = FederationClient::new(fl_proto::dial(dial).await.unwrap())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let frame = Bytes::from(vec![7; self.bytes]);
        for _ in 0..ROUNDS {
            let mut model = calls.fetch(wire::FetchRequest::default()).await.unwrap().into_inner();
            let mut received = 0;
            while let Some(chunk) = model.next().await {
                if let Some(wire::model_chunk::Part::Data(data)) = chunk.unwrap().part {
                    received += data.len();
                }
            }
            assert_eq!(received, self.bytes);
            let update = self.messages(&frame).map(|data| wire::UpdateChunk {
                part: Some(wire::update_chunk::Part::Data(data)),
            });
            calls
                .submit(tokio_stream::iter(update.collect::<Vec<_>>()))
                .await
                .unwrap();
        }
    }
}

async fn read(io: &mut (impl tokio::io::AsyncRead + Unpin), bytes: usize) {
    let (mut buffer, mut left) = (vec![0; PART], bytes);
    while left > 0 {
        let most = left.min(PART);
        left -= io.read(&mut buffer[..most]).await.unwrap();
    }
}

/// Calls that only move a frame's bytes.
#[derive(Debug)]
struct Calls(Round, Bytes);

type Chunks<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Federation for Calls {
    type WatchStream = Chunks<wire::RoundState>;
    type FetchStream = Chunks<wire::ModelChunk>;
    type FetchBaseStream = Chunks<wire::BaseChunk>;
    type ProbeStream = Chunks<wire::ProbeReply>;

    async fn fetch(&self, _: Request<wire::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let (messages, stream) = mpsc::channel(1);
        let parts = self.0.messages(&self.1);
        tokio::spawn(async move {
            for data in parts {
                let part = Some(wire::model_chunk::Part::Data(data));
                messages.send(Ok(wire::ModelChunk { part })).await.unwrap();
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn submit(
        &self,
        request: Request<Streaming<wire::UpdateChunk>>,
    ) -> Result<Response<wire::UpdateReply>, Status> {
        let mut stream = request.into_inner();
        while stream.message().await?.is_some() {}
        Ok(Response::new(wire::UpdateReply::default()))
    }

    async fn join(&self, _: Request<wire::JoinRequest>) -> Result<Response<wire::JoinReply>, Status> {
        Err(absent())
    }

    async fn watch(&self, _: Request<Streaming<wire::WatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        Err(absent())
    }

    async fn probe(&self, _: Request<Streaming<wire::ProbeRequest>>) -> Result<Response<Self::ProbeStream>, Status> {
        Err(absent())
    }

    async fn fetch_base(&self, _: Request<wire::BaseRequest>) -> Result<Response<Self::FetchBaseStream>, Status> {
        Err(absent())
    }

    async fn offer(&self, _: Request<wire::UpdateHeader>) -> Result<Response<wire::UpdateReply>, Status> {
        Err(absent())
    }

    async fn renew(&self, _: Request<wire::RenewRequest>) -> Result<Response<wire::RenewReply>, Status> {
        Err(absent())
    }

    async fn leave(&self, _: Request<wire::LeaveRequest>) -> Result<Response<wire::LeaveReply>, Status> {
        Err(absent())
    }

    async fn evaluate(&self, _: Request<wire::EvaluationReport>) -> Result<Response<wire::EvaluationReply>, Status> {
        Err(absent())
    }
}

fn absent() -> Status {
    Status::unimplemented("the bench only moves frames")
}
