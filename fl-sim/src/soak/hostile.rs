//! Attackers: strangers without certificates, a certified client that lies, and a certified client that is broken.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use fl_compress::{Digest, Encoder, FrameHeader, FrameKind, Layout, Spec};
use fl_proto::wire::federation_client::FederationClient;
use fl_proto::{
    Dial, EvaluationReport, JoinRequest, Joined, Phase, RoundState, UpdateHeader, UpdateId, UpdateReply, client_tls,
    dial, wire,
};
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::dice::Dice;
use crate::ground;
use crate::workload::TASK;

/// Names of the two certified attackers.
pub(super) const MALICIOUS: &str = "malicious";
pub(super) const BROKEN: &str = "broken";

/// Concurrent silent connections.
const SILENT: usize = 100;
/// Pause between two connections of garbage, in milliseconds.
const GARBAGE_APART: (u64, u64) = (50, 200);
/// Pause between two calls of a certified attacker, in milliseconds.
const CALLS_APART: (u64, u64) = (50, 400);
/// Time limit of a bad client's calls, and of its wait for the server.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Hostility {
    /// Connections that sent nothing.
    pub(crate) silent: u64,
    pub(crate) garbage: u64,
    pub(crate) malicious: u64,
    pub(crate) broken: u64,
    /// Calls of both that the server refused.
    pub(crate) refused: u64,
}

/// The counts so far, which all attackers share.
type Counts = Arc<Mutex<Hostility>>;

fn count(counts: &Counts, one_more: impl FnOnce(&mut Hostility)) {
    one_more(&mut counts.lock().unwrap_or_else(PoisonError::into_inner));
}

#[derive(Debug)]
pub(super) struct Hostile {
    counts: Counts,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Hostile {
    /// Starts them against the server at `address`, with the certificates in `dir`.
    pub(super) fn start(dir: &Path, address: &str, seed: u64) -> anyhow::Result<Self> {
        let counts = Counts::default();
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut dice = Dice(seed);
        let address: std::net::SocketAddr = address.parse()?;
        for stranger in 0..SILENT {
            let silent = silent(address, stranger, Dice(dice.next()), Arc::clone(&counts));
            tasks.spawn(until(stopped.clone(), silent));
        }
        tasks.spawn(until(
            stopped.clone(),
            garbage(address, Dice(dice.next()), Arc::clone(&counts)),
        ));
        for name in [MALICIOUS, BROKEN] {
            let bad = Bad {
                dir: dir.join(name),
                authority: ground::read(&dir.join("fed/authority.pem"))?,
                address: address.to_string(),
                is_malicious: name == MALICIOUS,
                dice: Dice(dice.next()),
                counts: Arc::clone(&counts),
            };
            tasks.spawn(until(stopped.clone(), bad.live()));
        }
        Ok(Self { counts, stop, tasks })
    }

    pub(super) async fn end(mut self) -> Hostility {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Repeats `work` until it is stopped.
async fn until(mut stop: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// A connection from an address that no honest client uses.
async fn connect(to: std::net::SocketAddr, stranger: usize) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let last = 2 + (stranger % 200) as u8;
    socket.bind((std::net::Ipv4Addr::new(127, 0, 1, last), 0).into())?;
    tokio::time::timeout(CALL_TIMEOUT, socket.connect(to)).await?
}

/// Opens silent connections, one after another.
async fn silent(to: std::net::SocketAddr, stranger: usize, mut dice: Dice, counts: Counts) {
    loop {
        if let Ok(connection) = connect(to, stranger).await {
            count(&counts, |counts| counts.silent += 1);
            let open = dice.pause((1_000, 60_000));
            let _ = tokio::time::timeout(open, connection.readable()).await;
        }
        tokio::time::sleep(dice.pause((500, 2_000))).await;
    }
}

/// Sends random bytes, one connection after another.
async fn garbage(to: std::net::SocketAddr, mut dice: Dice, counts: Counts) {
    for stranger in 0.. {
        if let Ok(mut connection) = connect(to, stranger).await {
            count(&counts, |counts| counts.garbage += 1);
            let bytes: Vec<u8> = (0..dice.below(4_096)).map(|_| dice.next() as u8).collect();
            let _ = tokio::time::timeout(CALL_TIMEOUT, connection.write_all(&bytes)).await;
        }
        tokio::time::sleep(dice.pause(GARBAGE_APART)).await;
    }
}

/// A client with a certificate that is malicious or broken.
struct Bad {
    dir: PathBuf,
    authority: String,
    address: String,
    is_malicious: bool,
    dice: Dice,
    counts: Counts,
}

impl Bad {
    /// Reconnects whenever its connection ends.
    async fn live(mut self) {
        loop {
            // Errors are expected.
            let _ = self.session().await;
            tokio::time::sleep(self.dice.pause((200, 1_000))).await;
        }
    }

    async fn session(&mut self) -> anyhow::Result<()> {
        let own = ground::pair(&self.dir, "client")?;
        let channel = dial(Dial::new(self.address.clone(), client_tls(&self.authority, &own)?));
        let channel = tokio::time::timeout(CALL_TIMEOUT, channel).await??;
        let mut calls = FederationClient::new(channel);
        let request = wire::JoinRequest::from(JoinRequest {
            tasks: vec![TASK.to_owned()],
            ..JoinRequest::default()
        });
        let joined = tokio::time::timeout(CALL_TIMEOUT, calls.join(request))
            .await??
            .into_inner();
        let joined = fl_proto::read_join(joined, None)?.0;
        let watched = calls.watch(tokio_stream::once(wire::WatchRequest {
            run: joined.run.to_string(),
            ..wire::WatchRequest::default()
        }));
        let mut watched = tokio::time::timeout(CALL_TIMEOUT, watched).await??.into_inner();
        while let Some(state) = watched.message().await? {
            let state = RoundState::try_from(state)?;
            if state.phase != Phase::Training {
                continue;
            }
            for _ in 0..1 + self.dice.below(3) {
                let done = tokio::time::timeout(CALL_TIMEOUT, self.misbehave(&mut calls, &joined, &state)).await;
                count(&self.counts, |counts| {
                    counts.malicious += u64::from(self.is_malicious);
                    counts.broken += u64::from(!self.is_malicious);
                    counts.refused += u64::from(!matches!(done, Ok(Ok(true))));
                });
                tokio::time::sleep(self.dice.pause(CALLS_APART)).await;
            }
        }
        Ok(())
    }

    /// One bad call; whether the server accepted it.
    async fn misbehave(
        &mut self,
        calls: &mut FederationClient<Channel>,
        joined: &Joined,
        state: &RoundState,
    ) -> anyhow::Result<bool> {
        if self.is_malicious {
            return match self.dice.below(4) {
                // Values far beyond any update, but finite in a sum of f32.
                0 => self.update(calls, joined, state, 1e30, 100).await,
                // A weight above all others.
                1 => self.update(calls, joined, state, 1.0, 1 << 40).await,
                2 => self.update(calls, joined, state, 100.0, 1 << 40).await,
                _ => self.evaluation(calls, joined, state).await,
            };
        }
        let round = state.round;
        match self.dice.below(5) {
            // An update of another model.
            0 => {
                let layout = Arc::new(Layout::new([("other", vec![3, 5])])?);
                let frame = frame(&layout, round, 0.1)?;
                submit(calls, header(joined, state, &frame, 10), &frame).await
            }
            // A good update with bytes flipped, under the digest of what is sent.
            1 => {
                let mut frame = frame(&Arc::new(joined.layout.clone()), round, 0.1)?;
                for _ in 0..1 + self.dice.below(20) {
                    let at = self.dice.below(frame.len() as u64) as usize;
                    frame[at] ^= self.dice.next() as u8;
                }
                submit(calls, header(joined, state, &frame, 10), &frame).await
            }
            // Bytes that are no frame.
            2 => {
                let bytes: Vec<u8> = (0..1 + self.dice.below(10_000))
                    .map(|_| self.dice.next() as u8)
                    .collect();
                submit(calls, header(joined, state, &bytes, 10), &bytes).await
            }
            // Another digest than that of the bytes.
            3 => {
                let frame = frame(&Arc::new(joined.layout.clone()), round, 0.1)?;
                let mut header = header(joined, state, &frame, 10);
                header.id.digest = Digest::of(&self.dice.next().to_le_bytes());
                submit(calls, header, &frame).await
            }
            // An upload that is cut off, possibly of a round that does not exist.
            _ => {
                let frame = frame(&Arc::new(joined.layout.clone()), round, 0.1)?;
                let mut header = header(joined, state, &frame, 10);
                header.id.round = round.wrapping_add(self.dice.below(3));
                submit(calls, header, &frame[..frame.len() / 2]).await
            }
        }
    }

    async fn update(
        &self,
        calls: &mut FederationClient<Channel>,
        joined: &Joined,
        state: &RoundState,
        value: f32,
        examples: u64,
    ) -> anyhow::Result<bool> {
        let frame = frame(&Arc::new(joined.layout.clone()), state.round, value)?;
        submit(calls, header(joined, state, &frame, examples), &frame).await
    }

    async fn evaluation(
        &self,
        calls: &mut FederationClient<Channel>,
        joined: &Joined,
        state: &RoundState,
    ) -> anyhow::Result<bool> {
        let report = EvaluationReport {
            run: joined.run.clone(),
            version: state.version,
            examples: 1 << 40,
            loss: -1.7e308,
            correct: Some((1u64 << 40) as f64),
            language: false,
            metrics: Default::default(),
        };
        let reply = calls.evaluate(wire::EvaluationReport::from(report)).await?;
        Ok(reply.into_inner().counted)
    }
}

/// An exact update whose values are all `value`.
fn frame(layout: &Arc<Layout>, round: u64, value: f32) -> anyhow::Result<Vec<u8>> {
    let mut encoder = Encoder::new(Arc::clone(layout), &Spec::exact())?;
    let header = FrameHeader {
        kind: FrameKind::Update,
        round,
        seed: round,
    };
    Ok(encoder.encode(&mut vec![value; layout.len()], header)?.frame)
}

fn header(joined: &Joined, state: &RoundState, frame: &[u8], examples: u64) -> UpdateHeader {
    UpdateHeader {
        id: UpdateId {
            run: joined.run.clone(),
            round: state.round,
            attempt: state.attempt,
            digest: Digest::of(frame),
        },
        len: frame.len() as u64,
        offset: 0,
        examples,
        loss: 0.5,
        train_ms: 1,
        encode_ms: 1,
        stages: Default::default(),
        fidelity: Vec::new(),
        metrics: Default::default(),
        evaluation: None,
    }
}

/// Uploads an update; whether the server accepted it.
async fn submit(calls: &mut FederationClient<Channel>, header: UpdateHeader, bytes: &[u8]) -> anyhow::Result<bool> {
    use wire::update_chunk::Part;
    let mut parts = vec![Part::Header((&header).into())];
    parts.extend(
        bytes
            .chunks(fl_proto::CHUNK)
            .map(|piece| Part::Data(piece.to_vec().into())),
    );
    let parts: Vec<_> = parts
        .into_iter()
        .map(|part| wire::UpdateChunk { part: Some(part) })
        .collect();
    let reply = calls.submit(tokio_stream::iter(parts)).await?.into_inner();
    let reply = UpdateReply::try_from(reply).context("the answer to an update")?;
    Ok(reply == UpdateReply::Accepted)
}
