//! A federation on loopback: a real server, and clients that tests drive call by call.
#![allow(unreachable_pub)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fl_compress::{Digest, Encoder, Frame, FrameHeader, FrameKind, Layout, Memory};
use fl_proto::wire::federation_client::FederationClient;
use fl_proto::{
    Authority, Dial, EvaluationReport, FetchRequest, Issued, JoinRequest, Joined, Meter, ModelHeader, NewKey, Paces,
    PartialFrame, Phase, Role, RoundState, SectionFidelity, SigningRequest, UpdateHeader, UpdateId, UpdateReply,
    certificate_pem, client_tls, dial, wire,
};
use fl_server::disk::Disk;
use fl_server::ledger::{Ledger, Row};
use fl_server::store::Store;
use fl_server::{Event, Live, Outcome, RunPlan, Serve, ServeError};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

pub(crate) use crate::contains::assert_contains;

/// Of the page.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub const NAMES: [&str; 3] = ["anna", "berta", "carl"];

/// Folder, certificates and model of one federation.
pub struct Fed {
    pub dir: TempDir,
    pub authority: Authority,
    pub root: Issued,
    pub server: Issued,
    pub layout: Arc<Layout>,
}

/// Rounds, clients and compression of a test run.
#[derive(Clone)]
pub struct Run {
    pub rounds: u64,
    pub clients: usize,
    pub evaluate: bool,
    pub compression: &'static str,
}

pub const EXACT: &str = "[compression]\nuplink = { default = {} }\ndownlink = { default = {} }\n";
pub const SPARSE: &str = r#"
[compression.uplink]
memory  = "error-feedback"
default = { reduce = { top_k = 0.05 }, quantize = { uniform = 4 }, code = "rans" }
[compression.downlink]
memory  = "error-feedback"
default = { reduce = { top_k = 0.05 }, quantize = { uniform = 4 }, code = "rans" }
"#;

/// CAFe: the client keeps the last model update as predictor; a client that fetched a snapshot has none.
pub const CAFE: &str = r#"
[compression.uplink]
memory  = "cafe"
default = { reduce = { top_k = 0.05 }, quantize = { uniform = 4 }, code = "rans" }
[compression.downlink]
memory  = "auto"
default = { reduce = { top_k = 0.05 }, quantize = { uniform = 4 }, code = "rans" }
"#;

impl Run {
    /// The default, with so many rounds.
    pub fn rounds(rounds: u64) -> Self {
        let default = Self::default();
        Self { rounds, ..default }
    }

    pub fn clients(self, clients: usize) -> Self {
        Self { clients, ..self }
    }

    pub fn evaluate(self) -> Self {
        let evaluate = true;
        Self { evaluate, ..self }
    }

    pub fn compression(self, compression: &'static str) -> Self {
        Self { compression, ..self }
    }
}

impl Default for Run {
    fn default() -> Self {
        Self {
            rounds: 2,
            clients: 3,
            evaluate: false,
            compression: EXACT,
        }
    }
}

impl Fed {
    pub fn new() -> Self {
        Self::with_layout(Layout::new([("a.weight", vec![40, 25]), ("b.bias", vec![10])]).unwrap())
    }

    pub fn with_layout(layout: Layout) -> Self {
        let dir = TempDir::new().unwrap();
        let now = OffsetDateTime::now_utc();
        let (authority, root) = Authority::create("test", now, Duration::days(10)).unwrap();
        let server = authority.issue_server(now, Duration::days(10)).unwrap();
        write_model(&dir.path().join("init.safetensors"), &layout);
        Self {
            dir,
            authority,
            root,
            server,
            layout: Arc::new(layout),
        }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn toml(&self, run: &Run) -> String {
        let Run {
            rounds,
            clients,
            evaluate,
            compression,
        } = run;
        format!(
            "name = \"test\"\ntask = \"toy\"\nrounds = {rounds}\nseed = 7\nmodel = \"init.safetensors\"\n\
             evaluate = {evaluate}\n[cohort]\nmin = {clients}\ntarget = {clients}\ngrace = \"10s\"\n\
             deadline = \"5min\"\n{compression}"
        )
    }

    pub fn plan(&self, run: &Run) -> RunPlan {
        RunPlan::from_toml(&self.toml(run), self.dir.path()).unwrap()
    }

    pub fn options(&self, run: &Run) -> Serve {
        let mut serve = Serve::new(
            self.data(),
            self.plan(run),
            self.root.certificate.clone(),
            self.server.clone(),
        );
        serve.revoked = self.dir.path().join("revoked");
        serve
    }

    /// Adds the page at a loopback address; returns this.
    pub fn page(&self, options: &mut Serve) -> String {
        let live = Live::bind("127.0.0.1:0".parse().unwrap(), None, &self.server).unwrap();
        let url = live.url();
        options.live = Some(live);
        url.trim_start_matches("http://").trim_end_matches('/').to_owned()
    }

    /// Adds the page at all addresses, over TLS and behind [`TOKEN`]; returns its loopback address.
    pub fn page_with_token(&self, options: &mut Serve) -> String {
        let live = Live::bind("0.0.0.0:0".parse().unwrap(), Some(TOKEN), &self.server).unwrap();
        let url = live.url();
        options.live = Some(live);
        let port = url.strip_prefix("https://localhost").unwrap();
        format!("127.0.0.1{}", port.trim_end_matches('/'))
    }

    pub async fn start(&self, run: &Run) -> Server {
        Server::start(self.options(run)).await
    }

    /// The stored ledger of the run, read with the server stopped.
    pub fn ledger(&self) -> Ledger {
        let store = Store::open(&self.data(), Disk::default()).unwrap();
        let run = store.run(&"test".parse().unwrap()).unwrap();
        let mut ledger = Ledger::default();
        for row in run.rows() {
            ledger.add(Row::from_bytes(&row.unwrap()).unwrap());
        }
        ledger
    }

    pub fn issue(&self, name: &str) -> Issued {
        let now = OffsetDateTime::now_utc();
        self.authority
            .issue_client(&name.parse().unwrap(), now, Duration::days(1))
            .unwrap()
    }

    /// A key of this role and its certificate, as enrollment makes them.
    pub fn issue_as(&self, name: &str, role: Role) -> Issued {
        let key = NewKey::generate().unwrap();
        let request = SigningRequest::from_der(&key.request(None).unwrap()).unwrap();
        let (name, now) = (name.parse().unwrap(), OffsetDateTime::now_utc());
        let signed = self
            .authority
            .sign(&request, &name, role, now, Duration::days(1))
            .unwrap();
        Issued {
            certificate: certificate_pem(&signed),
            key: key.to_pem(),
        }
    }

    pub async fn client(&self, name: &str, server: &Server) -> TestClient {
        TestClient::connect(&server.address, &self.root.certificate, &self.issue(name), name).await
    }

    pub async fn clients(&self, server: &Server) -> Vec<TestClient> {
        let mut hands = Vec::new();
        for name in NAMES {
            hands.push(self.client(name, server).await);
        }
        hands
    }
}

/// Initial weights with distinct values.
pub fn write_model(path: &Path, layout: &Layout) {
    let values: Vec<f32> = (0..layout.len()).map(|i| (i as f32 * 0.37).sin()).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let views = layout.tensors().iter().map(|t| {
        let data = &bytes[4 * t.offset..4 * (t.offset + t.len)];
        (
            t.name.clone(),
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, t.shape.clone(), data).unwrap(),
        )
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A server that runs until it is stopped.
pub struct Server {
    pub address: String,
    pub events: mpsc::Receiver<Event>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<Outcome, ServeError>>,
}

impl Server {
    pub async fn start(mut options: Serve) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, events) = mpsc::channel(100_000);
        options.events = Some(sender);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(fl_server::serve(listener, options, async {
            let _ = stopped.await;
        }));
        Self {
            address,
            events,
            stop: Some(stop),
            task,
        }
    }

    pub async fn stop(mut self) -> Outcome {
        drop(self.stop.take());
        self.end().await
    }

    /// Waits until the server exits by itself.
    pub async fn end(self) -> Outcome {
        self.result().await.unwrap()
    }

    pub async fn result(self) -> Result<Outcome, ServeError> {
        let _stop = self.stop;
        self.task.await.unwrap()
    }
}

/// A client that a test drives call by call.
pub struct TestClient {
    pub name: String,
    pub calls: FederationClient<Channel>,
    pub meter: Arc<Meter>,
    pub run: Option<Joined>,
    pub model: Vec<f32>,
    pub version: Option<u64>,
    pub encoder: Option<Encoder>,
    /// The last model update, if updates are encoded against it.
    pub step: Option<Vec<u8>>,
    /// Fidelity of the last encoded frame.
    pub fidelity: Vec<SectionFidelity>,
    /// Bytes of the accepted frames.
    pub sent: u64,
}

impl TestClient {
    pub async fn dial(address: &str, authority: &str, own: &Issued) -> Result<Self, tonic::transport::Error> {
        Self::dial_paced(address, authority, own, Paces::default()).await
    }

    /// A client that has joined the run.
    pub async fn connect(address: &str, authority: &str, own: &Issued, name: &str) -> Self {
        let hand = Self::dial(address, authority, own).await.unwrap();
        hand.joined(name).await
    }

    pub async fn dial_paced(
        address: &str,
        authority: &str,
        own: &Issued,
        paces: Paces,
    ) -> Result<Self, tonic::transport::Error> {
        let tls = client_tls(authority, own).unwrap();
        let way = Dial {
            paces,
            ..Dial::new(address.to_owned(), tls)
        };
        let meter = Arc::clone(&way.meter);
        let calls = FederationClient::new(dial(way).await?);
        Ok(Self {
            name: String::new(),
            calls,
            meter,
            run: None,
            model: Vec::new(),
            version: None,
            encoder: None,
            step: None,
            fidelity: Vec::new(),
            sent: 0,
        })
    }

    pub async fn join(&mut self, pending: Option<UpdateId>) -> Result<Joined, Status> {
        self.join_with(pending, None).await
    }

    /// `classes`: the digest of the names of the classes of the client's data.
    pub async fn join_with(&mut self, pending: Option<UpdateId>, classes: Option<u64>) -> Result<Joined, Status> {
        let request = wire::JoinRequest::from(JoinRequest {
            tasks: vec!["toy".into()],
            pending,
            classes: classes.into_iter().collect(),
            ..JoinRequest::default()
        });
        let reply = self.calls.join(request).await?.into_inner();
        Ok(fl_proto::read_join(reply, None).unwrap().0)
    }

    pub async fn joined(mut self, name: &str) -> Self {
        let run = self.join(None).await.unwrap();
        assert_eq!(run.client.as_str(), name);
        self.name = name.to_owned();
        self.encoder = Some(Encoder::new(Arc::new(run.layout.clone()), &run.uplink).unwrap());
        self.run = Some(run);
        self
    }

    /// The run that the client joined.
    fn run_name(&self) -> fl_proto::RunName {
        let joined = self.run.as_ref().map(|joined| joined.run.clone());
        joined.unwrap_or_else(|| "test".parse().unwrap())
    }

    pub async fn watch(&mut self) -> Streaming<wire::RoundState> {
        self.try_watch().await.unwrap()
    }

    async fn try_watch(&mut self) -> Result<Streaming<wire::RoundState>, Status> {
        let request = wire::WatchRequest {
            run: self.run_name().to_string(),
            ..wire::WatchRequest::default()
        };
        Ok(self.calls.watch(tokio_stream::once(request)).await?.into_inner())
    }

    /// The header and the frames, one after another.
    pub async fn fetch(&mut self, held: Option<u64>, want: u64) -> Result<(ModelHeader, Vec<Vec<u8>>), Status> {
        let request = FetchRequest {
            run: self.run_name(),
            ..fetch_request(held, want, None)
        };
        let (header, mut bytes) = self.fetch_bytes(request).await?;
        let mut frames = Vec::new();
        for part in header.frames() {
            let rest = bytes.split_off(part.len as usize);
            assert_eq!(Digest::of(&bytes), part.digest);
            frames.push(std::mem::replace(&mut bytes, rest));
        }
        assert!(bytes.is_empty());
        Ok((header, frames))
    }

    /// The header and the bytes after it.
    pub async fn fetch_bytes(&mut self, request: FetchRequest) -> Result<(ModelHeader, Vec<u8>), Status> {
        let mut stream = self.calls.fetch(wire::FetchRequest::from(request)).await?.into_inner();
        let mut header = None;
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.message().await? {
            match chunk.part.unwrap() {
                wire::model_chunk::Part::Header(part) => header = Some(ModelHeader::try_from(part).unwrap()),
                wire::model_chunk::Part::Data(data) => bytes.extend_from_slice(&data),
            }
        }
        Ok((header.unwrap(), bytes))
    }

    /// Updates the model to version `want`; returns its digest.
    pub async fn try_update_model(&mut self, want: u64) -> Result<Digest, Status> {
        let (header, frames) = self.fetch(self.version, want).await?;
        let layout = &self.run.as_ref().unwrap().layout;
        let snapshot = header.is_snapshot();
        self.model.resize(layout.len(), 0.0);
        for frame in &frames {
            let frame = Frame::parse(frame, layout).unwrap();
            frame.apply(&mut self.model).unwrap();
        }
        self.version = Some(want);
        let predicts = self.run.as_ref().unwrap().uplink.memory == Memory::Cafe;
        self.step = frames.last().filter(|_| predicts && !snapshot).cloned();
        Ok(Digest::of_f32(&self.model))
    }

    /// A deterministic delta for this client and round.
    pub fn model_delta(&self, round: u64) -> Vec<f32> {
        self.salted_delta(self.name.bytes().map(u64::from).sum::<u64>() + 31 * round)
    }

    fn salted_delta(&self, salt: u64) -> Vec<f32> {
        let n = self.run.as_ref().unwrap().layout.len();
        (0..n)
            .map(|i| ((i as u64 * 7 + salt) as f32 * 0.61).cos() * 0.1)
            .collect()
    }

    /// That delta, encoded.
    pub fn encode(&mut self, round: u64) -> Vec<u8> {
        let delta = self.model_delta(round);
        self.encode_delta(round, delta)
    }

    pub fn encode_salted(&mut self, round: u64, salt: u64) -> Vec<u8> {
        let delta = self.salted_delta(salt);
        self.encode_delta(round, delta)
    }

    pub fn encode_delta(&mut self, round: u64, mut delta: Vec<f32>) -> Vec<u8> {
        let header = FrameHeader {
            kind: FrameKind::Update,
            round,
            seed: round,
        };
        let encoder = self.encoder.as_mut().unwrap();
        let layout = &self.run.as_ref().unwrap().layout;
        let step = self.step.as_ref().map(|step| Frame::parse(step, layout).unwrap());
        let pending = encoder.encode_against(step.as_ref(), &mut delta, header).unwrap();
        encoder.settle(&pending, fl_compress::Ack::Accepted).unwrap();
        self.fidelity = SectionFidelity::of(&pending.fidelity);
        pending.frame
    }

    pub fn header(&self, round: u64, frame: &[u8]) -> UpdateHeader {
        UpdateHeader {
            id: UpdateId {
                run: self.run_name(),
                round,
                attempt: 1,
                digest: Digest::of(frame),
            },
            len: frame.len() as u64,
            offset: 0,
            examples: 10 + self.name.len() as u64,
            loss: 0.5,
            train_ms: 3,
            encode_ms: 1,
            stages: Default::default(),
            fidelity: self.fidelity.clone(),
            metrics: Default::default(),
            evaluation: None,
        }
    }

    pub async fn offer(&mut self, header: &UpdateHeader) -> UpdateReply {
        self.calls
            .offer(wire::UpdateHeader::from(header))
            .await
            .unwrap()
            .into_inner()
            .try_into()
            .unwrap()
    }

    pub async fn submit(&mut self, header: &UpdateHeader, bytes: &[u8]) -> Result<UpdateReply, Status> {
        let mut parts = vec![header_chunk(header)];
        parts.extend(bytes.chunks(fl_proto::CHUNK).map(data_chunk));
        self.submit_parts(parts).await
    }

    /// Sends a frame of `round` with its header.
    pub async fn submit_frame(&mut self, round: u64, frame: &[u8]) -> UpdateReply {
        let header = self.header(round, frame);
        self.submit(&header, frame).await.unwrap()
    }

    pub async fn submit_parts(&mut self, parts: Vec<wire::UpdateChunk>) -> Result<UpdateReply, Status> {
        let reply = self.calls.submit(tokio_stream::iter(parts)).await?.into_inner();
        Ok(UpdateReply::try_from(reply).unwrap())
    }

    /// Encodes and sends the update of one round.
    pub async fn send(&mut self, round: u64) -> UpdateReply {
        let frame = self.encode(round);
        let header = self.header(round, &frame);
        let reply = self.submit(&header, &frame).await.unwrap();
        if reply == UpdateReply::Accepted {
            self.sent += header.len;
        }
        reply
    }

    pub async fn try_evaluate(&mut self, version: u64) -> Result<bool, Status> {
        let report = EvaluationReport {
            run: self.run_name(),
            version,
            examples: 20,
            loss: 0.25,
            correct: Some(15.0),
            language: false,
            metrics: Default::default(),
        };
        Ok(self
            .calls
            .evaluate(wire::EvaluationReport::from(report))
            .await?
            .into_inner()
            .counted)
    }

    /// Takes part until the run is over, like a real client; returns the digest of the final model.
    pub async fn take_part(&mut self) -> Digest {
        self.try_part().await.unwrap()
    }

    /// Takes part until the server stops.
    pub async fn try_take_part(mut self, name: &str) {
        let run = self.join(None).await;
        if let Ok(run) = run {
            self.name = name.to_owned();
            self.encoder = Some(Encoder::new(Arc::new(run.layout.clone()), &run.uplink).unwrap());
            self.run = Some(run);
            let _ = self.try_part().await;
        }
    }

    async fn try_part(&mut self) -> Result<Digest, Status> {
        let mut watch = self.try_watch().await?;
        let (mut sent, mut evaluated) = (0, None);
        while let Some(state) = watch.message().await? {
            let state = RoundState::try_from(state).unwrap();
            if matches!(state.phase, Phase::Waiting | Phase::Closing) {
                continue;
            }
            if self.version != Some(state.version) {
                match self.try_update_model(state.version).await {
                    Ok(digest) => assert_eq!(state.model, digest, "version {} of {}", state.version, self.name),
                    // The run has moved on: the next message has the new state.
                    Err(status) if status.code() == tonic::Code::FailedPrecondition => continue,
                    Err(status) => return Err(status),
                }
            }
            if state.evaluate && evaluated != Some(state.version) {
                evaluated = Some(state.version);
                self.try_evaluate(state.version).await?;
            }
            // The state may be older than the acceptance of the last update.
            let due = state.phase == Phase::Training && state.round > sent;
            if due && state.selected && state.accepted.is_none() {
                sent = state.round;
                let frame = self.encode(state.round);
                let header = self.header(state.round, &frame);
                let mut reply = self.submit(&header, &frame).await?;
                if let UpdateReply::Wanted { offset } = reply {
                    // Resumes an interrupted upload of the same frame.
                    let rest = UpdateHeader {
                        offset,
                        ..header.clone()
                    };
                    reply = self.submit(&rest, &frame[offset as usize..]).await?;
                }
                assert_eq!(reply, UpdateReply::Accepted);
                self.sent += header.len;
            }
            if state.phase == Phase::Done {
                break;
            }
        }
        Ok(Digest::of_f32(&self.model))
    }

    /// Reads states until one satisfies `wanted`.
    pub async fn until(watch: &mut Streaming<wire::RoundState>, wanted: impl Fn(&RoundState) -> bool) -> RoundState {
        loop {
            let state = watch.message().await.unwrap().expect("the stream went on");
            let state = RoundState::try_from(state).unwrap();
            if wanted(&state) {
                return state;
            }
        }
    }

    /// Reads states until this round is open.
    pub async fn until_round(watch: &mut Streaming<wire::RoundState>, round: u64) -> RoundState {
        Self::until(watch, |state| state.phase == Phase::Training && state.round == round).await
    }
}

/// A fetch of the run `test`.
pub fn fetch_request(held: Option<u64>, want: u64, partial: Option<PartialFrame>) -> FetchRequest {
    let run = "test".parse().unwrap();
    FetchRequest {
        run,
        held,
        want,
        partial,
    }
}

/// The status that ends a watch.
pub async fn ended(watch: &mut Streaming<wire::RoundState>) -> Status {
    loop {
        match watch.message().await {
            Ok(state) => assert!(state.is_some(), "the watch ended without a reason"),
            Err(status) => return status,
        }
    }
}

/// The authority, and the client's certificate and key, of a folder that `issue` has written.
pub fn issued_in(folder: &Path) -> (String, Issued) {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let own = Issued {
        certificate: read("client.pem"),
        key: read("client.key"),
    };
    (read("authority.pem"), own)
}

/// Binds an ephemeral loopback port and frees it.
pub fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// The watches of all clients, in their order.
pub async fn watch_all(hands: &mut [TestClient]) -> Vec<Streaming<wire::RoundState>> {
    let mut watches = Vec::new();
    for hand in hands {
        watches.push(hand.watch().await);
    }
    watches
}

/// The watches of all clients, each of which has seen an open round.
pub async fn in_training(hands: &mut [TestClient]) -> Vec<Streaming<wire::RoundState>> {
    let mut watches = watch_all(hands).await;
    for watch in &mut watches {
        TestClient::until(watch, |state| state.phase == Phase::Training).await;
    }
    watches
}

/// The messages of an upload that has begun with `data`, and where its next ones go.
pub async fn upload(
    header: &UpdateHeader,
    data: &[u8],
) -> (mpsc::Sender<wire::UpdateChunk>, ReceiverStream<wire::UpdateChunk>) {
    let (parts, stream) = mpsc::channel(4);
    parts.send(header_chunk(header)).await.unwrap();
    parts.send(data_chunk(data)).await.unwrap();
    (parts, ReceiverStream::new(stream))
}

pub fn header_chunk(header: &UpdateHeader) -> wire::UpdateChunk {
    wire::UpdateChunk {
        part: Some(wire::update_chunk::Part::Header(header.into())),
    }
}

pub fn data_chunk(data: &[u8]) -> wire::UpdateChunk {
    wire::UpdateChunk {
        part: Some(wire::update_chunk::Part::Data(data.to_vec().into())),
    }
}

/// Runs all clients to the end of the run; returns the digests of their final models.
pub async fn all_take_part(hands: &mut [TestClient]) -> Vec<Digest> {
    let mut tasks = Vec::new();
    for hand in hands.iter_mut() {
        tasks.push(hand.take_part());
    }
    join_all(tasks).await
}

/// Polls all futures on this task until all are done.
pub async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_some() {
                continue;
            }
            if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
                *result = Some(value);
            }
        }
        if results.iter().all(Option::is_some) {
            return std::task::Poll::Ready(results.iter_mut().filter_map(Option::take).collect());
        }
        std::task::Poll::Pending
    })
    .await
}
